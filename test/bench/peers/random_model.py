"""Writes a Hugging Face directory with the shape of Qwen3-0.6B and random weights, in bf16, with another model's tokenizer."""

import shutil
import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

folder, tokenizer = sys.argv[1:]
torch.manual_seed(0)
config = Qwen3Config(
    vocab_size=151936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40960,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    tie_word_embeddings=True,
    eos_token_id=151645,
    bos_token_id=151643,
    dtype="bfloat16",
)
Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(f"{tokenizer}/{name}", folder)
