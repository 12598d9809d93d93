"""LLaMA 1 to 3 and Mistral, and what Mixtral and GLM share with them."""

from collections.abc import Sequence
from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Same, Table
from transformer_hub.families.rotary_settings import read_rotary, write_rotary
from transformer_hub.families.settings import Key, Settings, their_activation, write_keys
from transformer_spec.config import (
    Causal,
    GatedFeedForward,
    ModelConfig,
    PreNorm,
    RMSNorm,
    Rotary,
)
from transformer_spec.fields import ConfigError


def decoder_keys(
    max_seq_len: int, num_kv_heads: int | None, head_dim: int | None
) -> tuple[Key, ...]:
    """The settings of LLaMA and its kin, with the defaults of a config class."""
    return (
        Key("vocab_size", "vocab_size"),
        Key("max_position_embeddings", "max_seq_len", max_seq_len),
        Key("hidden_size", "d_model"),
        Key("intermediate_size", "d_ff"),
        Key("num_hidden_layers", "num_layers"),
        Key("num_attention_heads", "num_heads"),
        Key("num_key_value_heads", "num_kv_heads", num_kv_heads),
        Key("head_dim", "head_dim", head_dim),
        Key("attention_dropout", "attn_dropout", 0.0),
        Key("tie_word_embeddings", "tie_embeddings", False),
    )


def write_decoder(
    keys: Sequence[Key], config: ModelConfig, partial: bool = False
) -> dict[str, Any]:
    """What all of them write."""
    assert isinstance(config.position, Rotary)
    return (
        write_keys(keys, config)
        | write_rotary(config.position, partial)
        | {
            "num_key_value_heads": config.kv_heads,
            "rms_norm_eps": config.norm.eps,
            "hidden_act": their_activation(config.ffn.activation),
        }
    )


_THEIRS, _OURS = "model.layers.{i}", "decoder.layers.{i}"
DECODER = (
    Same("model.embed_tokens.weight", "decoder.embed.weight"),
    Same(f"{_THEIRS}.input_layernorm.weight", f"{_OURS}.attn_norm.weight"),
    Same(f"{_THEIRS}.self_attn.q_proj.*", f"{_OURS}.attn.q_proj.*"),
    Same(f"{_THEIRS}.self_attn.k_proj.*", f"{_OURS}.attn.k_proj.*"),
    Same(f"{_THEIRS}.self_attn.v_proj.*", f"{_OURS}.attn.v_proj.*"),
    Same(f"{_THEIRS}.self_attn.o_proj.*", f"{_OURS}.attn.o_proj.*"),
    Same(f"{_THEIRS}.post_attention_layernorm.weight", f"{_OURS}.ffn_norm.weight"),
    Same("model.norm.weight", "decoder.final_norm.weight"),
    Same("lm_head.weight", "lm_head.weight"),
)
GATED = (
    Same(f"{_THEIRS}.mlp.gate_proj.*", f"{_OURS}.ffn.gate_proj.*"),
    Same(f"{_THEIRS}.mlp.up_proj.*", f"{_OURS}.ffn.up_proj.*"),
    Same(f"{_THEIRS}.mlp.down_proj.*", f"{_OURS}.ffn.down_proj.*"),
)


def decoder_layout(family: str, config: ModelConfig, *tables: Table) -> Layout:
    tied = [Copy("lm_head.weight", "model.embed_tokens.weight")] if config.tie_embeddings else []
    # Releases before 4.32 stored the rotary frequencies.
    frequencies = (r"\.rotary_emb\.inv_freq$",)
    return Layout(family, config, tables, tied, "model.", frequencies)


def read_window(settings: Settings, default: int | None = None) -> Causal:
    """The mask of a class that has one window for all layers."""
    mask = Causal(window=settings.get("sliding_window", default))
    kind = "full_attention" if mask.window is None else "sliding_attention"
    given = settings.get("layer_types", None)
    if given is not None and set(given) != {kind}:
        raise ConfigError(f"layer_types: {given!r} is not supported; it must be {kind!r} for all")
    return mask


LLAMA_KEYS = (
    *decoder_keys(2048, None, None),
    Key("attention_bias", ("qkv_bias", "out_bias"), False),
    Key("mlp_bias", "ffn_bias", False),
)
MISTRAL_KEYS = decoder_keys(131072, 8, None)


def read_llama(settings: Settings) -> ModelConfig:
    # Its cache, not its mask, would follow a window.
    settings.must("sliding_window", None)
    settings.must("layer_types", None)
    return ModelConfig(
        arch="decoder",
        position=read_rotary(settings),
        norm=RMSNorm(eps=settings.get("rms_norm_eps", 1e-6)),
        residual=PreNorm(),
        ffn=GatedFeedForward(activation=settings.activation("hidden_act", "silu")),
        **settings.fields(LLAMA_KEYS),
    )


def read_mistral(settings: Settings) -> ModelConfig:
    settings.must("attention_bias", False)
    settings.must("mlp_bias", False)
    return ModelConfig(
        arch="decoder",
        position=read_rotary(settings),
        mask=read_window(settings, 4096),
        norm=RMSNorm(eps=settings.get("rms_norm_eps", 1e-6)),
        residual=PreNorm(),
        ffn=GatedFeedForward(activation=settings.activation("hidden_act", "silu")),
        ffn_bias=False,
        **settings.fields(MISTRAL_KEYS),
    )


def write_window(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.mask, Causal)
    return {"sliding_window": config.mask.window}


SLOTS = {
    "position": (Rotary,),
    "mask": (Causal,),
    "norm": (RMSNorm,),
    "ffn": (GatedFeedForward,),
}

LLAMA = Family(
    name="llama",
    model_type="llama",
    architectures=("LlamaForCausalLM", "LlamaModel"),
    slots=SLOTS,
    read=read_llama,
    write=lambda config: write_decoder(LLAMA_KEYS, config),
    layout=lambda config: decoder_layout("llama", config, DECODER + GATED),
    architecture=lambda config: "LlamaForCausalLM",
)
MISTRAL = Family(
    name="mistral",
    model_type="mistral",
    architectures=("MistralForCausalLM", "MistralModel"),
    slots=SLOTS,
    read=read_mistral,
    write=lambda config: write_decoder(MISTRAL_KEYS, config) | write_window(config),
    layout=lambda config: decoder_layout("mistral", config, DECODER + GATED),
    architecture=lambda config: "MistralForCausalLM",
)
