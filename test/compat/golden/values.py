"""Makes one variant's directories, and computes their values with transformers and peft."""

import json
from pathlib import Path
from zlib import crc32

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from variants import Variant

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHARED_PROMPT = 6  # tokens that both sequences begin with, so that they are packed into one row
TEMPERATURE = 0.8


def write_variant(variant: Variant, tokenizer: Path, folder: Path) -> None:
    """Fills `folder`: model/ and adapter/ as saved by their libraries, and their outputs."""
    random = torch.Generator().manual_seed(crc32(variant.name.encode()))
    write_model(variant, tokenizer, folder / "model", random)
    # Computed in float64, where processors do not differ as they do in the order of float32 sums.
    model = AutoModelForCausalLM.from_pretrained(
        folder / "model", dtype=torch.float64, attn_implementation="eager"
    ).eval()

    vocabulary = model.config.vocab_size
    sequences = [torch.randint(vocabulary, (n,), generator=random) for n in (14, variant.longest)]
    sequences[1][:SHARED_PROMPT] = sequences[0][:SHARED_PROMPT]
    values = {f"logits.{i}": logits(model, tokens) for i, tokens in enumerate(sequences)}

    adapted = add_adapter(model, variant.name, random)
    values |= {f"adapted_logits.{i}": logits(adapted, tokens) for i, tokens in enumerate(sequences)}
    values |= gradients(adapted, sequences, random)
    adapted.float().save_pretrained(folder / "adapter", save_embedding_layers=False)
    (folder / "adapter" / "README.md").unlink()

    single = {name: value.float() for name, value in values.items()}
    save_file(single, folder / "values.safetensors")
    facts = {"tokens": [tokens.tolist() for tokens in sequences], "temperature": TEMPERATURE}
    (folder / "facts.json").write_text(json.dumps(facts) + "\n")


def write_model(variant: Variant, tokenizer: Path, path: Path, random: torch.Generator) -> None:
    model = AutoModelForCausalLM.from_config(variant.config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            draw(name, parameter, random)
    model.to(variant.dtype).save_pretrained(
        path, max_shard_size="6KB" if variant.is_sharded else "1GB"
    )
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(path)

    if variant.stores_tied_head:
        tensors = load_file(path / "model.safetensors")
        head = tensors["model.embed_tokens.weight"].clone()
        save_file({"lm_head.weight": head} | tensors, path / "model.safetensors", {"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    config |= variant.published
    config = {key: value for key, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def draw(name: str, parameter: torch.Tensor, random: torch.Generator) -> None:
    """Far from their usual start, so that attention and logits are far from uniform."""
    values = torch.randn(parameter.shape, generator=random)
    if name.endswith("norm.weight"):
        parameter.copy_(1 + 0.3 * values)
    elif name.endswith(".bias"):
        parameter.copy_(0.5 * values)
    elif "embed" in name or "lm_head" in name:
        parameter.copy_(0.5 * values)
    else:
        parameter.copy_(values * parameter.shape[1] ** -0.5)


def add_adapter(model, name: str, random: torch.Generator):
    adapted = get_peft_model(model, LoraConfig(r=2, lora_alpha=6, target_modules=MODULES))
    config = adapted.peft_config["default"]
    config.base_model_name_or_path = name
    config.target_modules = MODULES  # it became a set, which is written in another order each time
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if "lora_" in key:
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=random))
    return adapted.eval()


def logits(model, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens[None]).logits[0].contiguous()


def gradients(adapted, sequences: list[torch.Tensor], random: torch.Generator) -> dict:
    """The data and the gradients of -sum(exp(l - q) * A), with l the logprobs and q their behavior."""
    values = {}
    loss = torch.zeros((), dtype=torch.float64)
    for i, tokens in enumerate(sequences):
        found = torch.log_softmax(adapted(tokens[None, :-1]).logits[0] / TEMPERATURE, -1)
        current = found.gather(1, tokens[1:, None])[:, 0]
        behavior = (current + 0.2 * torch.randn(current.shape, generator=random)).detach().clamp(max=0)
        advantages = torch.randn(current.shape, generator=random)
        advantages[: SHARED_PROMPT - 1] = 0
        loss = loss - ((current - behavior).exp() * advantages).sum()
        values |= {f"behavior.{i}": behavior, f"advantages.{i}": advantages}
    loss.backward()
    values["loss"] = loss.detach()[None]
    for key, parameter in adapted.named_parameters():
        if "lora_" in key:
            # As peft names it in the file: without the adapter's own name.
            values[f"gradient.{key.replace('.default', '')}"] = parameter.grad
    return values
