"""Qwen3: LLaMA with a norm on each head's queries and keys."""

from typing import Any

from transformer_hub.families.llama_like import (
    DECODER,
    GATED_FFN,
    OURS,
    THEIRS,
    check_layer_types,
    decoder_keys,
    llama_like,
)
from transformer_hub.families.relations import Same
from transformer_hub.families.settings import Key, Settings
from transformer_spec.config import Causal


def read(settings: Settings) -> dict[str, Any]:
    for key in ("sliding_window", "max_window_layers"):
        settings.get(key, None)  # without use_sliding_window, both are idle
    check_layer_types(settings, lambda layer: Causal())
    return {"qk_norm": True}


FAMILY = llama_like(
    "qwen3",
    "Qwen3",
    (*decoder_keys(32768, 32, 128), Key("attention_bias", ("qkv_bias", "out_bias"), False)),
    (
        *DECODER,
        *GATED_FFN,
        Same(f"{THEIRS}.self_attn.q_norm.weight", f"{OURS}.attn.q_norm.weight"),
        Same(f"{THEIRS}.self_attn.k_norm.weight", f"{OURS}.attn.k_norm.weight"),
    ),
    supported={"use_sliding_window": False},
    read=read,
)
