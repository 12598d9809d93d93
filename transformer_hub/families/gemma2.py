"""Gemma 2: windows in every other layer, soft caps, a norm on both sides of each sublayer."""

from typing import Any

from transformer_hub.families.llama_like import (
    ATTENTION,
    ENDS,
    GATED_FFN,
    OURS,
    THEIRS,
    check_layer_types,
    decoder_keys,
    llama_like,
)
from transformer_hub.families.relations import Same
from transformer_hub.families.settings import Key, Settings
from transformer_spec.config import AlternatingWindow, Causal, ModelConfig, SandwichNorm

# Every second layer sees the whole text.
FULL_EVERY = 2


def read(settings: Settings) -> dict[str, Any]:
    window = settings.get("sliding_window", 4096)
    mask = AlternatingWindow(window=window, full_every=FULL_EVERY)
    check_layer_types(
        settings, lambda layer: Causal(window=None if (layer + 1) % FULL_EVERY == 0 else window)
    )
    return {
        "mask": mask,
        "residual": SandwichNorm(),
        "scale_embeddings": True,
        "attention_scale": settings.number("query_pre_attn_scalar", 256) ** -0.5,
    }


def write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.mask, AlternatingWindow)
    return {
        "sliding_window": config.mask.window,
        "query_pre_attn_scalar": _whole(config.score_scale**-2),
    }


def _whole(scalar: float) -> float:
    """The number itself, without the rounding of a square root where it is a whole one."""
    return round(scalar) if abs(scalar - round(scalar)) < 1e-9 * scalar else scalar


FAMILY = llama_like(
    "gemma2",
    "Gemma2",
    (
        *decoder_keys(8192, 4, 256, tied=True),
        Key("attention_bias", ("qkv_bias", "out_bias"), False),
        Key("attn_logit_softcapping", "score_cap", 50.0),
        Key("final_logit_softcapping", "logit_cap", 30.0),
    ),
    (
        *ENDS,
        *ATTENTION,
        *GATED_FFN,
        Same(f"{THEIRS}.post_attention_layernorm.weight", f"{OURS}.attn_out_norm.weight"),
        Same(f"{THEIRS}.pre_feedforward_layernorm.weight", f"{OURS}.ffn_norm.weight"),
        Same(f"{THEIRS}.post_feedforward_layernorm.weight", f"{OURS}.ffn_out_norm.weight"),
    ),
    norm_offset=1.0,
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    supported={"use_bidirectional_attention": None},
    read=read,
    write=write,
    slots={"mask": (AlternatingWindow,)},
)
