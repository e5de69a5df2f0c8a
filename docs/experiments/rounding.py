"""How far float32 rounds logprobs of the shipped model, in the local backend and in numpy: both against numpy in float64.

python3 docs/experiments/rounding.py BACKEND_URL MODEL_DIR [ADAPTER_DIR TINKER_PATH]

Needs numpy. The backend samples 256 answers of up to 16 tokens to prompts of three random numbers, and scores them. TINKER_PATH is a
version that the backend has, ADAPTER_DIR the folder of its PEFT adapter; without them it is the base model. The API key is
in TINKER_API_KEY. Prints the root mean square and the largest of the differences, and the largest between the two.
"""

import json
import os
import random
import sys
import time
import urllib.request

import numpy as np


def call(url, path, body):
    headers = {"content-type": "application/json", "x-api-key": os.environ.get("TINKER_API_KEY", "tml-dummy")}
    request = urllib.request.Request(url + "/api/v1/" + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


class Sampler:
    def __init__(self, url, model_path):
        self.url = url
        session = call(url, "create_session", {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"})["session_id"]
        weights = {"base_model": "offbeat/base"} if model_path is None else {"model_path": model_path}
        opened = call(url, "create_sampling_session", {"session_id": session, "sampling_session_seq_id": 0, **weights})
        self.session = opened["sampling_session_id"]

    def ask(self, tokens, **more):
        prompt = {"chunks": [{"type": "encoded_text", "tokens": tokens}]}
        body = {"sampling_session_id": self.session, "prompt": prompt, "num_samples": 1, **more}
        future = call(self.url, "asample", body)["request_id"]
        while True:
            result = call(self.url, "retrieve_future", {"request_id": future})
            if result.get("type") != "try_again":
                return result
            time.sleep(0.01)


def tensors(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}, and only F32 is read here"
        first, end = entry["data_offsets"]
        yield name, np.frombuffer(data[first:end], np.float32).reshape(entry["shape"])


def logprobs(tokens, config, weights, adapter, scale, dtype):
    """[T - 1] of each token from the second on: Qwen3, as in transformers."""
    heads, shared, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    given, length = tokens[:-1], len(tokens) - 1

    def linear(x, name):
        y = x @ weights[name + ".weight"].astype(dtype).T
        if not adapter:
            return y
        a, b = (adapter[f"base_model.model.{name}.lora_{each}.weight"].astype(dtype) for each in "AB")
        return y + dtype(scale) * ((x @ a.T) @ b.T)

    def norm(x, name):
        root = np.sqrt((x * x).mean(-1, keepdims=True) + dtype(config["rms_norm_eps"]))
        return x / root * weights[name + ".weight"].astype(dtype)

    frequencies = config["rope_theta"] ** -(np.arange(0, size, 2) / size)
    angles = np.tile(np.arange(length)[:, None] * frequencies, 2)[:, None]
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)

    def rotate(x):
        return x * cos + np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], -1) * sin

    x = weights["model.embed_tokens.weight"].astype(dtype)[given]
    hidden = np.triu(np.ones((length, length), bool), 1)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm")
        q = rotate(norm(linear(h, at + "self_attn.q_proj").reshape(length, heads, size), at + "self_attn.q_norm"))
        k = rotate(norm(linear(h, at + "self_attn.k_proj").reshape(length, shared, size), at + "self_attn.k_norm"))
        v = linear(h, at + "self_attn.v_proj").reshape(length, shared, size)
        k, v = (np.repeat(each, heads // shared, 1) for each in (k, v))
        scores = np.where(hidden, dtype(-1e30), np.einsum("thd,shd->hts", q, k) / dtype(size**0.5))
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares = shares / shares.sum(-1, keepdims=True)
        x = x + linear(np.einsum("hts,shd->thd", shares, v).reshape(length, -1), at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        gate = linear(h, at + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    logits = norm(x, "model.norm") @ weights["model.embed_tokens.weight"].astype(dtype).T
    logits = logits - logits.max(-1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[np.arange(length), tokens[1:]]


def main(url, model_dir, adapter_dir=None, model_path=None):
    with open(os.path.join(model_dir, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(model_dir, "tokenizer.json")) as file:
        vocabulary = json.load(file)["model"]["vocab"]
    weights = dict(tensors(os.path.join(model_dir, "model.safetensors")))
    adapter, scale = {}, 0
    if adapter_dir is not None:
        adapter = dict(tensors(os.path.join(adapter_dir, "adapter_model.safetensors")))
        with open(os.path.join(adapter_dir, "adapter_config.json")) as file:
            peft = json.load(file)
        scale = peft["lora_alpha"] / peft["r"]
    sampler, draw = Sampler(url, model_path), random.Random(0)
    backend, single = [], []
    for seed in range(256):
        numbers = " ".join(str(draw.randint(1, 50)) for _ in range(3))
        prompt = [vocabulary[letter] for letter in f"{numbers}={draw.randint(1, 200)}:"]
        sampled = sampler.ask(prompt, sampling_params={"max_tokens": 16, "seed": seed})
        tokens = prompt + sampled["sequences"][0]["tokens"]
        scored = sampler.ask(tokens, sampling_params={"max_tokens": 0}, prompt_logprobs=True)
        first = len(prompt) - 1  # only of the answer
        exact = logprobs(tokens, config, weights, adapter, scale, np.float64)[first:]
        backend.extend(np.array(scored["prompt_logprobs"][1:], float)[first:] - exact)
        single.extend(logprobs(tokens, config, weights, adapter, scale, np.float32)[first:] - exact)
    backend, single = np.array(backend), np.array(single)
    for name, found in (("local backend", backend), ("numpy", single)):
        print(f"{name}: {np.sqrt((found**2).mean()):.1e} of {len(found)} tokens, at most {np.abs(found).max():.1e}")
    print(f"between the two: at most {np.abs(backend - single).max():.1e}")


main(*sys.argv[1:])
