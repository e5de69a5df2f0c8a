"""torch trains one step: forward and backward pass of the loss `cispo` and AdamW, with learning rate 0 so that every
round computes the same. The data, the packing and the adapter are ours, read from --folder.

packed: rows that share a prompt, as ours, and LoRA merged into each matrix, of which there is a gradient; peft: each
answer with its prompt in a padded row, and peft's own layers. Tensors are prepared before the time is taken."""

import argparse
import json
import pathlib

import torch
from peft import PeftModel
from rounds import serve, timed
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--folder", required=True)
parser.add_argument("--way", choices=["packed", "peft"], required=True)
parser.add_argument("--dtype", default="float32")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--batch-tokens", type=int, default=2048)
args = parser.parse_args()

torch.set_num_threads(args.threads)
folder = pathlib.Path(args.folder)
given = json.loads((folder / "step.json").read_text())
dtype = getattr(torch, args.dtype)
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(dtype)
model.requires_grad_(False)


def batches_of(lengths):
    """Rows of similar length together, the shortest first."""
    batches = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if batches and (len(batches[-1]) + 1) * lengths[row] <= args.batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def packed_batch(rows):
    time = max(row["length"] for row in rows)
    shape = (len(rows), time)
    feeds = {key: torch.zeros(shape, dtype=torch.long) for key in ("tokens", "targets", "positions")}
    feeds |= {key: torch.zeros(shape) for key in ("logprobs", "advantages")}
    bias = torch.full((len(rows), 1, time, time), -torch.inf)
    for at, row in enumerate(rows):
        prefix = row["prefix"]
        own = torch.eye(time, dtype=torch.bool)
        own[:prefix, :prefix] = torch.ones(prefix, prefix).tril().bool()
        for number, segment in enumerate(row["segments"]):
            datum = given["data"][segment["sequence"]]
            start, length = segment["offset"], segment["length"]
            for key in ("tokens", "targets", "logprobs", "advantages"):
                values = torch.tensor(datum[key], dtype=feeds[key].dtype)
                if number == 0:
                    feeds[key][at, :prefix] = values[:prefix]
                feeds[key][at, start : start + length] = values[prefix:]
            feeds["positions"][at, start : start + length] = torch.arange(prefix, prefix + length)
            own[start : start + length, :prefix] = True
            own[start : start + length, start : start + length] = torch.ones(length, length).tril().bool()
        feeds["positions"][at, :prefix] = torch.arange(prefix)
        bias[at, 0].masked_fill_(own, 0)
    return feeds | {"bias": bias.to(dtype)}


if args.way == "packed":
    scale = given["alpha"] / given["rank"]
    saved = load_file(str(folder / "adapter_model.safetensors"))
    parts, parameters = {}, []
    for key in [key for key in saved if key.endswith("lora_A.weight")]:
        a = saved[key].requires_grad_()
        b = saved[key.replace("lora_A", "lora_B")].requires_grad_()
        name = key.removeprefix("base_model.model.").removesuffix("lora_A.weight") + "weight"
        parts[name] = (model.get_parameter(name).float(), a, b)
        parameters += [a, b]
    rows = given["rows"]
    batches = [
        packed_batch([rows[row] for row in batch]) for batch in batches_of([row["length"] for row in rows])
    ]

    def logits_of(batch):
        merged = {name: (w + scale * (b @ a)).to(dtype) for name, (w, a, b) in parts.items()}
        inputs = {
            "input_ids": batch["tokens"],
            "position_ids": batch["positions"],
            "attention_mask": batch["bias"],
            "use_cache": False,
        }
        return torch.func.functional_call(model, merged, (), inputs).logits

else:
    model = PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batches = []
    for batch in batches_of([len(datum["tokens"]) for datum in given["data"]]):
        data = [given["data"][row] for row in batch]
        time = max(len(datum["tokens"]) for datum in data)
        pad = lambda key: torch.tensor([datum[key] + [0] * (time - len(datum[key])) for datum in data])
        mask = torch.tensor([[1] * len(datum["tokens"]) + [0] * (time - len(datum["tokens"])) for datum in data])
        batches.append({key: pad(key) for key in ("tokens", "targets", "logprobs", "advantages")} | {"mask": mask})

    def logits_of(batch):
        return model(input_ids=batch["tokens"], attention_mask=batch["mask"], use_cache=False).logits


optimizer = torch.optim.AdamW(parameters, lr=0.0, weight_decay=0.0)
found = {}


def step():
    optimizer.zero_grad()
    total = 0.0
    for batch in batches:
        logprobs = torch.log_softmax(logits_of(batch).float(), -1)
        current = logprobs.gather(-1, batch["targets"][..., None])[..., 0]
        ratio = (current - batch["logprobs"]).exp().clamp(max=4.0).detach()
        loss = -(ratio * current * batch["advantages"]).sum()
        loss.backward()
        total += loss.item()
    found["loss"] = total
    found["norm"] = torch.stack([parameter.grad.norm() for parameter in parameters]).norm().item()
    optimizer.step()
    return len(given["data"])


serve(lambda: timed(step) | found)
