"""ChatGLM-6B, the first: its authors' own code, not in transformers.

A block computes h = norm(x), x = alpha h + attn(h), m = norm'(x), x = alpha m + mlp(m), and a last
norm follows the last block. That is DeepNorm with its norms counted from one place later: the first
norm is one on the embeddings, and what a block begins with is what the block before it ends with.
"""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Fused, Same, Table
from transformer_hub.families.settings import Key, Settings, write_keys
from transformer_spec.config import (
    DeepNorm,
    FeedForward,
    LayerNorm,
    ModelConfig,
    PrefixLM,
    TwoChannelRotary,
)

KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("max_sequence_length", "max_seq_len", 2048),
    Key("hidden_size", "d_model"),
    Key("inner_hidden_size", "d_ff", 16384),
    Key("num_layers", "num_layers"),
    Key("num_attention_heads", "num_heads"),
    Key("tie_word_embeddings", "tie_embeddings", True),
)
_UNSUPPORTED = {"pre_seq_len": None, "prefix_projection": False, "quantization_bit": 0}


def read(settings: Settings) -> ModelConfig:
    settings.require("position_encoding_2d", True)
    for key, supported in _UNSUPPORTED.items():
        settings.require(key, supported)
    return ModelConfig(
        arch="decoder",
        position=TwoChannelRotary(theta=10000.0),
        mask=PrefixLM(),
        norm=LayerNorm(eps=settings.get("layernorm_epsilon", 1e-5)),
        residual=DeepNorm(alpha=(2 * settings.number("num_layers")) ** 0.5),
        ffn=FeedForward(activation="gelu_tanh"),
        embed_norm=True,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        **settings.fields(KEYS),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    return (
        write_keys(KEYS, config)
        | {"layernorm_epsilon": config.norm.eps, "position_encoding_2d": True}
        | _UNSUPPORTED
    )


def layout(config: ModelConfig) -> Layout:
    # The published files hold the head beside the embedding to which it is tied.
    embedding = "transformer.word_embeddings.weight"
    tied = [Copy("lm_head.weight", embedding, written=True)] if config.tie_embeddings else []
    frequencies = (r"\.rotary_emb\.inv_freq$",)
    return Layout("chatglm", config, [_table(config)], tied, "transformer.", frequencies)


def _table(config: ModelConfig) -> Table:
    theirs, ours = "transformer.layers.{i}", "decoder.layers.{i}"
    last = config.num_layers - 1
    return (
        Same("transformer.word_embeddings.weight", "decoder.embed.weight"),
        Same("transformer.layers.0.input_layernorm.*", "decoder.embed_norm.*"),
        Fused(
            f"{theirs}.attention.query_key_value.*",
            (f"{ours}.attn.q_proj.*", f"{ours}.attn.k_proj.*", f"{ours}.attn.v_proj.*"),
            groups=config.num_heads,
        ),
        Same(f"{theirs}.attention.dense.*", f"{ours}.attn.o_proj.*"),
        Same(f"{theirs}.post_attention_layernorm.*", f"{ours}.attn_norm.*"),
        Same(f"{theirs}.mlp.dense_h_to_4h.*", f"{ours}.ffn.up_proj.*"),
        Same(f"{theirs}.mlp.dense_4h_to_h.*", f"{ours}.ffn.down_proj.*"),
        *(
            Same(f"transformer.layers.{i + 1}.input_layernorm.*", f"decoder.layers.{i}.ffn_norm.*")
            for i in range(last)
        ),
        Same("transformer.final_layernorm.*", f"decoder.layers.{last}.ffn_norm.*"),
        Same("lm_head.weight", "lm_head.weight"),
    )


FAMILY = Family(
    name="chatglm",
    model_type="chatglm",
    architectures=("ChatGLMModel", "ChatGLMForConditionalGeneration"),
    slots={
        "position": (TwoChannelRotary,),
        "mask": (PrefixLM,),
        "norm": (LayerNorm,),
        "residual": (DeepNorm,),
        "ffn": (FeedForward,),
    },
    read=read,
    write=write,
    layout=layout,
    architecture=lambda config: "ChatGLMModel",
    marks=("inner_hidden_size", "position_encoding_2d"),
)
