"""GLM-4-9B and GLM-4-0414 as transformers has them: half of each head turns, in adjacent pairs."""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.llama import (
    DECODER,
    SLOTS,
    decoder_keys,
    decoder_layout,
    write_decoder,
)
from transformer_hub.families.relations import Fused, Same
from transformer_hub.families.rotary_settings import read_rotary
from transformer_hub.families.settings import Key, Settings
from transformer_spec.config import GatedFeedForward, ModelConfig, PreNorm, RMSNorm, SandwichNorm

KEYS = (*decoder_keys(131072, 2, 128), Key("attention_bias", "qkv_bias", True))

_THEIRS, _OURS = "model.layers.{i}", "decoder.layers.{i}"
TABLE = (
    *DECODER,
    Fused(
        f"{_THEIRS}.mlp.gate_up_proj.weight",
        (f"{_OURS}.ffn.gate_proj.weight", f"{_OURS}.ffn.up_proj.weight"),
    ),
    Same(f"{_THEIRS}.mlp.down_proj.weight", f"{_OURS}.ffn.down_proj.weight"),
    # These two in glm4 alone.
    Same(f"{_THEIRS}.post_self_attn_layernorm.weight", f"{_OURS}.attn_out_norm.weight"),
    Same(f"{_THEIRS}.post_mlp_layernorm.weight", f"{_OURS}.ffn_out_norm.weight"),
)


def _read(settings: Settings, residual: PreNorm | SandwichNorm) -> ModelConfig:
    settings.must("mlp_bias", False)
    settings.must("sliding_window", None)
    settings.must("layer_types", None)
    return ModelConfig(
        arch="decoder",
        position=read_rotary(settings, partial=0.5, interleaved=True),
        norm=RMSNorm(eps=settings.get("rms_norm_eps", 1.5625e-07)),
        residual=residual,
        ffn=GatedFeedForward(activation=settings.activation("hidden_act", "silu")),
        ffn_bias=False,
        **settings.fields(KEYS),
    )


def _write(config: ModelConfig) -> dict[str, Any]:
    return write_decoder(KEYS, config, partial=True) | {"head_dim": config.head_size}


GLM = Family(
    name="glm",
    model_type="glm",
    architectures=("GlmForCausalLM", "GlmModel"),
    slots=SLOTS,
    read=lambda settings: _read(settings, PreNorm()),
    write=_write,
    layout=lambda config: decoder_layout("glm", config, TABLE),
    architecture=lambda config: "GlmForCausalLM",
)
GLM4 = Family(
    name="glm4",
    model_type="glm4",
    architectures=("Glm4ForCausalLM", "Glm4Model"),
    slots=SLOTS,
    read=lambda settings: _read(settings, SandwichNorm()),
    write=_write,
    layout=lambda config: decoder_layout("glm4", config, TABLE),
    architecture=lambda config: "Glm4ForCausalLM",
)
