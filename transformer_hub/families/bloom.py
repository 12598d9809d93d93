"""BLOOM: ALiBi, a norm on the embeddings, q, k and v of each head side by side in one matrix.

It sets no limit on length: `max_seq_len` is `seq_length`, or 2048, with which it was trained.
"""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Fused, Same, Table
from transformer_hub.families.settings import Key, Settings, write_keys
from transformer_spec.config import ALiBi, FeedForward, LayerNorm, ModelConfig, PreNorm

_WIDTH = Key("hidden_size", "d_model", aliases=("n_embed",))
KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("seq_length", "max_seq_len", 2048),
    _WIDTH,
    Key("n_layer", "num_layers", aliases=("num_hidden_layers",)),
    Key("n_head", "num_heads", aliases=("num_attention_heads",)),
    Key("hidden_dropout", ("attn_out_dropout", "ffn_out_dropout"), 0.0),
    Key("attention_dropout", "attn_dropout", 0.0),
    Key("tie_word_embeddings", "tie_embeddings", True),
)


def read(settings: Settings) -> ModelConfig:
    settings.require("apply_residual_connection_post_layernorm", False)
    width = settings.number(_WIDTH.theirs, aliases=_WIDTH.aliases)
    return ModelConfig(
        arch="decoder",
        position=ALiBi(),
        norm=LayerNorm(eps=settings.get("layer_norm_epsilon", 1e-5)),
        residual=PreNorm(),
        ffn=FeedForward(activation="gelu_tanh"),
        d_ff=4 * width,
        embed_norm=True,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        **settings.fields(KEYS),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    return write_keys(KEYS, config) | {"layer_norm_epsilon": config.norm.eps}


def layout(config: ModelConfig) -> Layout:
    embedding = "transformer.word_embeddings.weight"
    tied = [Copy("lm_head.weight", embedding)] if config.tie_embeddings else []
    return Layout("bloom", config, [_table(config.num_heads)], tied, "transformer.")


def _table(heads: int) -> Table:
    theirs, ours = "transformer.h.{i}", "decoder.layers.{i}"
    return (
        Same("transformer.word_embeddings.weight", "decoder.embed.weight"),
        Same("transformer.word_embeddings_layernorm.*", "decoder.embed_norm.*"),
        Same(f"{theirs}.input_layernorm.*", f"{ours}.attn_norm.*"),
        Fused(
            f"{theirs}.self_attention.query_key_value.*",
            (f"{ours}.attn.q_proj.*", f"{ours}.attn.k_proj.*", f"{ours}.attn.v_proj.*"),
            groups=heads,
        ),
        Same(f"{theirs}.self_attention.dense.*", f"{ours}.attn.o_proj.*"),
        Same(f"{theirs}.post_attention_layernorm.*", f"{ours}.ffn_norm.*"),
        Same(f"{theirs}.mlp.dense_h_to_4h.*", f"{ours}.ffn.up_proj.*"),
        Same(f"{theirs}.mlp.dense_4h_to_h.*", f"{ours}.ffn.down_proj.*"),
        Same("transformer.ln_f.*", "decoder.final_norm.*"),
        Same("lm_head.weight", "lm_head.weight"),
    )


FAMILY = Family(
    name="bloom",
    model_type="bloom",
    architectures=("BloomForCausalLM", "BloomModel"),
    slots={"position": (ALiBi,), "norm": (LayerNorm,), "ffn": (FeedForward,)},
    read=read,
    write=write,
    layout=layout,
    architecture=lambda config: "BloomForCausalLM",
)
