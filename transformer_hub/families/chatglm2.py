"""ChatGLM2-6B, ChatGLM3-6B and GLM-4-9B in the layout of their authors' own code.

transformers has the last as `glm`, under other names. `rope_ratio` multiplies theta, as in ChatGLM3
and GLM-4; ChatGLM2-6B-32K divides positions by it, and its config tells that by its name alone.
"""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Layout
from transformer_hub.families.relations import Fused, Same, Table
from transformer_hub.families.settings import Key, Settings, write_keys
from transformer_spec.config import (
    GatedFeedForward,
    LayerNorm,
    ModelConfig,
    PreNorm,
    RMSNorm,
    Rotary,
)
from transformer_spec.fields import ConfigError

KEYS = (
    Key("padded_vocab_size", "vocab_size", aliases=("vocab_size",)),
    Key("seq_length", "max_seq_len", 2048),
    Key("hidden_size", "d_model"),
    Key("ffn_hidden_size", "d_ff"),
    Key("num_layers", "num_layers", aliases=("num_hidden_layers",)),
    Key("num_attention_heads", "num_heads"),
    Key("kv_channels", "head_dim", 128),
    Key("hidden_dropout", ("attn_out_dropout", "ffn_out_dropout"), 0.0),
    Key("attention_dropout", "attn_dropout", 0.0),
    Key("add_bias_linear", ("out_bias", "ffn_bias", "head_bias"), False),
)
_THETA = 10000.0
_ALWAYS = {
    "post_layer_norm": True,
    "apply_residual_connection_post_layernorm": False,
    "pre_seq_len": None,
    "quantization_bit": 0,
    "interleaved_qkv": False,
    "tie_word_embeddings": False,
}


def read(settings: Settings) -> ModelConfig:
    for key, supported in _ALWAYS.items():
        settings.require(key, supported)
    fields = settings.fields(KEYS)
    norm = RMSNorm if settings.get("rmsnorm", True) else LayerNorm
    return ModelConfig(
        arch="decoder",
        position=Rotary(theta=_THETA * _ratio(settings), fraction=0.5, interleaved=True),
        norm=norm(eps=settings.get("layernorm_epsilon", 1e-5)),
        residual=PreNorm(),
        ffn=GatedFeedForward(activation="silu"),
        num_kv_heads=_groups(settings),
        qkv_bias=settings.get("add_qkv_bias", False) or fields["out_bias"],
        **fields,
    )


def _groups(settings: Settings) -> int | None:
    """None where q, k and v of each head lie side by side: what their code does without groups."""
    groups = settings.get("multi_query_group_num", 1)
    return groups if settings.get("multi_query_attention", False) else None


def _ratio(settings: Settings) -> float:
    ratio = settings.number("rope_ratio", 1)
    if ratio != 1 and "chatglm2" in str(settings.get("_name_or_path", "")).lower():
        expected = "1: ChatGLM2 divides positions by it, other versions multiply theta"
        raise ConfigError(
            f"rope_ratio: {ratio!r} is not supported in ChatGLM2; it must be {expected}"
        )
    return ratio


def write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.position, Rotary)
    ratio = config.position.theta / _THETA
    return (
        write_keys(KEYS, config)
        | {
            "vocab_size": config.vocab_size,
            "num_hidden_layers": config.num_layers,
            "kv_channels": config.head_size,
            "multi_query_attention": config.num_kv_heads is not None,
            "multi_query_group_num": config.kv_heads,
            "add_qkv_bias": config.qkv_bias,
            "rmsnorm": isinstance(config.norm, RMSNorm),
            "layernorm_epsilon": config.norm.eps,
            "rope_ratio": int(ratio) if ratio.is_integer() else ratio,
            "original_rope": True,
        }
        | _ALWAYS
    )


def layout(config: ModelConfig) -> Layout:
    frequencies = (r"(^|\.)rotary_pos_emb\.inv_freq$",)
    return Layout("chatglm2", config, [_table(config)], prefix="transformer.", ignored=frequencies)


def _table(config: ModelConfig) -> Table:
    theirs, ours = "transformer.encoder.layers.{i}", "decoder.layers.{i}"
    return (
        Same("transformer.embedding.word_embeddings.weight", "decoder.embed.weight"),
        Same(f"{theirs}.input_layernorm.*", f"{ours}.attn_norm.*"),
        Fused(
            f"{theirs}.self_attention.query_key_value.*",
            (f"{ours}.attn.q_proj.*", f"{ours}.attn.k_proj.*", f"{ours}.attn.v_proj.*"),
            groups=config.num_heads if config.num_kv_heads is None else 1,
        ),
        Same(f"{theirs}.self_attention.dense.*", f"{ours}.attn.o_proj.*"),
        Same(f"{theirs}.post_attention_layernorm.*", f"{ours}.ffn_norm.*"),
        Fused(
            f"{theirs}.mlp.dense_h_to_4h.*", (f"{ours}.ffn.gate_proj.*", f"{ours}.ffn.up_proj.*")
        ),
        Same(f"{theirs}.mlp.dense_4h_to_h.*", f"{ours}.ffn.down_proj.*"),
        Same("transformer.encoder.final_layernorm.*", "decoder.final_norm.*"),
        Same("transformer.output_layer.*", "lm_head.*"),
    )


FAMILY = Family(
    name="chatglm2",
    model_type="chatglm",
    architectures=("ChatGLMModel", "ChatGLMForConditionalGeneration"),
    slots={
        "position": (Rotary,),
        "norm": (RMSNorm, LayerNorm),
        "ffn": (GatedFeedForward,),
    },
    read=read,
    write=write,
    layout=layout,
    architecture=lambda config: "ChatGLMModel",
    marks=("ffn_hidden_size", "multi_query_group_num"),
)
