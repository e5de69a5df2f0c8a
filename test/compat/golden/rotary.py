"""Rotary embeddings of transformers at the sizes of real models."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from variants import ROTARY

POSITIONS = [0, 1, 4095, 40000, 131071]


def write_rotary(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    values = {}
    cases = []
    for name, config in ROTARY:
        rotary = LlamaRotaryEmbedding(config)
        cos, sin = rotary(torch.zeros(1), torch.tensor([POSITIONS]))
        half = cos.shape[-1] // 2  # the other half repeats it
        values[f"{name}.frequencies"] = rotary.inv_freq
        values[f"{name}.cos"] = cos[0, :, :half].contiguous()
        values[f"{name}.sin"] = sin[0, :, :half].contiguous()
        case = {"name": name, "amplitude": rotary.attention_scaling, "positions": POSITIONS}
        cases.append(case | {"config": json.loads(config.to_json_string(use_diff=False))})
    save_file(values, folder / "values.safetensors")
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
