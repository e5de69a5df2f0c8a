"""Compares model directories made from GGUF files with what transformers reads from those files.

Started in a folder with ours.json, which names the files and directories, and has our tokens of some texts.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

found = json.load(open("ours.json"))
settings = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"]
settings += ["max_position_embeddings", "tie_word_embeddings", "vocab_size", "rope_parameters"]
settings += ["bos_token_id", "eos_token_id", "pad_token_id", "attention_bias", "mlp_bias", "hidden_act", "model_type"]


def report(check, value, bound, passed):
    print(json.dumps({"check": check, "value": value, "bound": str(bound), "passed": bool(passed)}))


def equal(check, value, expected):
    report(check, str(value), str(expected), value == expected)


def from_gguf(reader, file, **options):
    return reader.from_pretrained(str(Path(file).parent), gguf_file=Path(file).name, **options)


def head_dim(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def compare(file, dtype, out):
    theirs = from_gguf(AutoModelForCausalLM, file, dtype=torch.float32)
    cast = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    weights = {name: weight.to(cast) for name, weight in theirs.state_dict().items() if name != "lm_head.weight"}
    with safe_open(f"{out}/model.safetensors", "pt") as ours:
        names = set(ours.keys())
        equal(f"{out}: weights that only one of us has", names ^ weights.keys(), set())
        same = sum(torch.equal(ours.get_tensor(name), weights[name]) for name in names & weights.keys())
        equal(f"{out}: weights equal in every bit", same, len(weights))
        finite = sum(bool(weight.isfinite().all()) for weight in weights.values())
        equal(f"{out}: weights of finite numbers", finite, len(weights))
    ours = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    pairs = {key: (getattr(ours.config, key, None), getattr(theirs.config, key, None)) for key in settings}
    if theirs.config.model_type != "qwen3":  # there transformers ignores the file, and takes 128
        pairs["head_dim"] = (head_dim(ours.config), head_dim(theirs.config))
    equal(f"{out}: settings that differ", {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}, {})
    error = abs(ours.config.rms_norm_eps - theirs.config.rms_norm_eps)
    report(f"{out}: rms_norm_eps", error, "≤ 1e-12", error <= 1e-12)  # theirs is the float32


for each in found["files"]:
    compare(**each)

smol = next(each["file"] for each in found["files"] if each["out"] == "smol-bf16")
tokenizer = from_gguf(AutoTokenizer, smol)
written = AutoTokenizer.from_pretrained("smol-bf16")
ids = [tokenizer(each["text"], add_special_tokens=False)["input_ids"] for each in found["texts"]]
equal("texts with other tokens", [e["text"] for e, one in zip(found["texts"], ids) if e["ids"] != one], [])
again = [written(each["text"])["input_ids"] for each in found["texts"]]
equal("the same, our tokenizer.json in transformers", [t for t, one in zip(again, ids) if t != one], [])
back = [tokenizer.decode(one, skip_special_tokens=True) for one in ids]
equal("tokens with another text", [e["decoded"] for e, one in zip(found["texts"], back) if e["decoded"] != one], [])
chat = tokenizer.apply_chat_template(found["chat"], tokenize=False, add_generation_prompt=True)
report("the conversation by the chat template", len(found["chatText"]), f"the same, {len(chat)}", found["chatText"] == chat)

# The whole of it: a model whose rows were in another order would answer nonsense.
model = AutoModelForCausalLM.from_pretrained("smol-bf16", dtype=torch.float32)
question = tokenizer.apply_chat_template(found["chat"][:1], tokenize=False, add_generation_prompt=True)
inputs = written(question, return_tensors="pt")
answer = model.generate(**inputs, max_new_tokens=12, do_sample=False)
text = written.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
report("the answer to the capital of France", text, "names Paris", "Paris" in text)
