"""The models that parity is tested with: small, but with everything that the three families ship with."""

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import LlamaConfig, Qwen2Config, Qwen3Config


@dataclass(frozen=True)
class Variant:
    name: str
    config: Any
    dtype: torch.dtype = torch.float32
    # Keys of config.json as directories have them that were not written by transformers 5.
    published: dict[str, Any] = field(default_factory=dict)
    is_sharded: bool = False
    stores_tied_head: bool = False
    longest: int = 24  # tokens of the longest sequence


SIZES = dict(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    eos_token_id=1,
)

YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=1000.0)

VARIANTS = [
    Variant("qwen3", Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True)),
    Variant(
        "qwen3-untied-bf16-shards",
        Qwen3Config(**SIZES, head_dim=8),
        dtype=torch.bfloat16,
        is_sharded=True,
    ),
    # In peft's files layer 10 comes before layer 2.
    Variant(
        "qwen3-many-layers",
        Qwen3Config(
            **SIZES
            | dict(
                vocab_size=24,
                hidden_size=8,
                intermediate_size=8,
                num_hidden_layers=11,
                num_attention_heads=2,
                num_key_value_heads=1,
            ),
            head_dim=4,
        ),
        dtype=torch.bfloat16,
    ),
    Variant(
        "qwen3-one-key-head-biases",
        Qwen3Config(**SIZES | dict(num_key_value_heads=1), head_dim=8, attention_bias=True),
    ),
    Variant("qwen3-yarn", Qwen3Config(**SIZES, head_dim=8, rope_parameters=YARN), longest=60),
    Variant(
        "qwen3-yarn-every-setting",
        Qwen3Config(
            **SIZES,
            head_dim=8,
            rope_parameters=YARN
            | dict(attention_factor=0.8, beta_fast=4.0, beta_slow=0.25, truncate=False),
        ),
        dtype=torch.bfloat16,
        longest=60,
    ),
    Variant(
        "qwen2-tied-stored-head",
        Qwen2Config(**SIZES, tie_word_embeddings=True, sliding_window=8, max_window_layers=2),
        dtype=torch.bfloat16,
        published=dict(sliding_window=8, use_sliding_window=False),
        stores_tied_head=True,
    ),
    # As the cards of Qwen2.5 tell users to: the scaling is added, max_position_embeddings stays.
    Variant(
        "qwen2-yarn-as-published",
        Qwen2Config(**SIZES | dict(max_position_embeddings=16), max_window_layers=2),
        dtype=torch.float16,
        published=dict(
            rope_theta=1000.0,
            rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=16),
            use_sliding_window=True,
            sliding_window=8,
            rope_parameters=None,
        ),
        longest=60,
    ),
    Variant(
        "llama-untied-no-groups",
        LlamaConfig(**SIZES | dict(num_key_value_heads=4), rms_norm_eps=1e-5),
    ),
    Variant(
        "llama3-as-published",
        LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=True),
        dtype=torch.bfloat16,
        published=dict(
            rope_theta=100.0,
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
            rope_parameters=None,
        ),
        longest=60,
    ),
    Variant(
        "llama-linear-biases",
        LlamaConfig(
            **SIZES | dict(max_position_embeddings=32),
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1000.0),
        ),
        longest=60,
    ),
    Variant(
        "llama-dynamic",
        LlamaConfig(
            **SIZES | dict(max_position_embeddings=32),
            rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=1000.0),
        ),
        dtype=torch.bfloat16,
        longest=32,
    ),
]

"""Rotary embeddings at the sizes of real models: (name, configuration)."""
ROTARY = [
    ("Qwen3-0.6B", Qwen3Config(head_dim=128, rope_parameters=dict(rope_theta=1e6))),
    (
        "Qwen3-8B, yarn as on its card",
        Qwen3Config(
            head_dim=128,
            max_position_embeddings=40960,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e6,
                factor=4.0,
                original_max_position_embeddings=32768,
            ),
        ),
    ),
    (
        "Qwen2.5-7B, yarn with every setting",
        Qwen2Config(
            hidden_size=3584,
            num_attention_heads=28,
            num_key_value_heads=4,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e6,
                factor=4.0,
                original_max_position_embeddings=32768,
                beta_fast=16.0,
                beta_slow=2.0,
                mscale=0.707,
                mscale_all_dim=1.0,
                truncate=False,
            ),
        ),
    ),
    (
        "Llama-3.1-8B",
        LlamaConfig(
            head_dim=128,
            max_position_embeddings=131072,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=5e5,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=8192,
            ),
        ),
    ),
    (
        "Llama-3.2-1B",
        LlamaConfig(
            head_dim=64,
            max_position_embeddings=131072,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=5e5,
                factor=32.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=8192,
            ),
        ),
    ),
    (
        "vicuna-7b-v1.5-16k",
        LlamaConfig(
            head_dim=128,
            max_position_embeddings=4096,
            rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0),
        ),
    ),
]
