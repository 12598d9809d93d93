"""GPT-2: learned positions, pre-norm; matrices stored [in, out], q, k and v in one of them."""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Fused, Same, Transposed
from transformer_hub.families.settings import Key, Settings, their_activation, write_keys
from transformer_spec.config import FeedForward, LayerNorm, Learned, ModelConfig, PreNorm

KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("n_positions", "max_seq_len", aliases=("max_position_embeddings",)),
    Key("n_embd", "d_model", aliases=("hidden_size",)),
    Key("n_layer", "num_layers", aliases=("num_hidden_layers",)),
    Key("n_head", "num_heads", aliases=("num_attention_heads",)),
    Key("embd_pdrop", "embed_dropout", 0.1),
    Key("attn_pdrop", "attn_dropout", 0.1),
    Key("resid_pdrop", ("attn_out_dropout", "ffn_out_dropout"), 0.1),
    Key("tie_word_embeddings", "tie_embeddings", True),
)

_THEIRS, _OURS = "transformer.h.{i}", "decoder.layers.{i}"
TABLE = (
    Same("transformer.wte.weight", "decoder.embed.weight"),
    Same("transformer.wpe.weight", "decoder.pos_embed.weight"),
    Same(f"{_THEIRS}.ln_1.*", f"{_OURS}.attn_norm.*"),
    Fused(
        f"{_THEIRS}.attn.c_attn.*",
        (f"{_OURS}.attn.q_proj.*", f"{_OURS}.attn.k_proj.*", f"{_OURS}.attn.v_proj.*"),
        transposed=True,
    ),
    Transposed(f"{_THEIRS}.attn.c_proj.*", f"{_OURS}.attn.o_proj.*"),
    Same(f"{_THEIRS}.ln_2.*", f"{_OURS}.ffn_norm.*"),
    Transposed(f"{_THEIRS}.mlp.c_fc.*", f"{_OURS}.ffn.up_proj.*"),
    Transposed(f"{_THEIRS}.mlp.c_proj.*", f"{_OURS}.ffn.down_proj.*"),
    Same("transformer.ln_f.*", "decoder.final_norm.*"),
    Same("lm_head.weight", "lm_head.weight"),
)


def read(settings: Settings) -> ModelConfig:
    settings.require("scale_attn_weights", True)
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("add_cross_attention", False)
    width = settings.number("n_embd", aliases=("hidden_size",))
    inner = settings.get("n_inner", None)
    return ModelConfig(
        arch="decoder",
        position=Learned(),
        norm=LayerNorm(eps=settings.get("layer_norm_epsilon", 1e-5)),
        residual=PreNorm(),
        ffn=FeedForward(activation=settings.activation("activation_function", "gelu_new")),
        d_ff=4 * width if inner is None else inner,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        **settings.fields(KEYS),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    return write_keys(KEYS, config) | {
        "n_inner": None if config.d_ff == 4 * config.d_model else config.d_ff,
        "layer_norm_epsilon": config.norm.eps,
        "activation_function": their_activation(config.ffn.activation),
    }


def layout(config: ModelConfig) -> Layout:
    tied = [Copy("lm_head.weight", "transformer.wte.weight")] if config.tie_embeddings else []
    # Releases before 4.31 stored the causal mask and the score of what it hides.
    masks = (r"(^|\.)h\.\d+\.attn\.(bias|masked_bias)$",)
    return Layout("gpt2", config, [TABLE], tied, "transformer.", masks)


FAMILY = Family(
    name="gpt2",
    model_type="gpt2",
    architectures=("GPT2LMHeadModel", "GPT2Model"),
    slots={"position": (Learned,), "norm": (LayerNorm,), "ffn": (FeedForward,)},
    read=read,
    write=write,
    layout=layout,
    architecture=lambda config: "GPT2LMHeadModel",
)
