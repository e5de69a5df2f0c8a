"""Writes a Hugging Face directory of the Llama or Qwen3 architecture as a GGUF file, with matrices in BF16, F16 or Q8_0.
llama.cpp's own converter refuses the tokenizers of random models, and needs packages for other families."""

import json
import pathlib
import sys

import gguf
import torch
from safetensors import safe_open

source, target, kind = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
config = json.loads((source / "config.json").read_text())
family, layers = config["model_type"], config["num_hidden_layers"]
if family not in ("llama", "qwen3"):
    raise SystemExit(f"{source} is of the family {family}; llama and qwen3 can be converted")
architecture = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}[family]
heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
head = config.get("head_dim") or config["hidden_size"] // heads

writer = gguf.GGUFWriter(target, family)
writer.add_context_length(config["max_position_embeddings"])
writer.add_embedding_length(config["hidden_size"])
writer.add_feed_forward_length(config["intermediate_size"])
writer.add_block_count(layers)
writer.add_head_count(heads)
writer.add_head_count_kv(key_heads)
writer.add_key_length(head)
writer.add_value_length(head)
writer.add_rope_dimension_count(head)
writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
writer.add_rope_freq_base(rope.get("rope_theta") or config.get("rope_theta"))
writer.add_vocab_size(config["vocab_size"])
file_type = {"BF16": "MOSTLY_BF16", "F16": "MOSTLY_F16", "Q8_0": "MOSTLY_Q8_0"}[kind]
writer.add_file_type(gguf.LlamaFileType[file_type])

tokenizer = json.loads((source / "tokenizer.json").read_text())
if len(tokenizer["model"]["vocab"]) + 1024 < config["vocab_size"]:
    writer.add_tokenizer_model("no_vocab")  # a tokenizer of another model
else:
    names = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    added = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    names |= added
    numbers = range(config["vocab_size"])
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if family == "llama" else "qwen2")
    writer.add_token_list([names.get(number, f"[PAD{number}]") for number in numbers])
    writer.add_token_types([kinds.CONTROL if n in added else kinds.NORMAL if n in names else kinds.UNUSED for n in numbers])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    end = config["eos_token_id"]
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)
    writer.add_bos_token_id(config.get("bos_token_id") or 0)


def interleaved(weight, heads):
    """Rows in the order of llama.cpp's rotation for this family: neighbors instead of halves."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


names = gguf.get_tensor_name_map(architecture, layers)
for path in sorted(source.glob("*.safetensors")):
    with safe_open(str(path), "pt") as tensors:
        for key in tensors.keys():
            weight = tensors.get_tensor(key).to(torch.float32)
            if family == "llama" and key.endswith(("q_proj.weight", "k_proj.weight")):
                weight = interleaved(weight, heads if "q_proj" in key else key_heads)
            name = names.get_name(key, try_suffixes=(".weight", ".bias"))
            if weight.ndim == 1:
                writer.add_tensor(name, weight.numpy())
                continue
            quantization = gguf.GGMLQuantizationType[kind]
            data = gguf.quants.quantize(weight.numpy(), quantization)
            writer.add_tensor(name, data, raw_dtype=quantization)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
