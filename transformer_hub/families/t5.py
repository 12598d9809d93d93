"""T5 and T5 1.1: an encoder-decoder with a bias per distance, RMS norms, and no other bias.

T5 sets no limit on length: `max_seq_len` is `n_positions`, or 512, with which the models were
trained. T5 also drops out after each stack's final norm; that is no part of our model.
"""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Same, Table
from transformer_hub.families.settings import Key, Settings, their_activation, write_keys
from transformer_spec.config import (
    FeedForward,
    GatedFeedForward,
    ModelConfig,
    PreNorm,
    RelativeBias,
    RMSNorm,
)
from transformer_spec.fields import ConfigError

KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("n_positions", "max_seq_len", 512),
    Key("d_model", "d_model", aliases=("hidden_size",)),
    Key("d_ff", "d_ff"),
    Key("d_kv", "head_dim", 64, aliases=("head_dim",)),
    Key("num_layers", "num_layers", aliases=("num_hidden_layers",)),
    Key("num_heads", "num_heads", aliases=("num_attention_heads",)),
    Key(
        "dropout_rate",
        (
            "embed_dropout",
            "attn_dropout",
            "attn_out_dropout",
            "ffn_hidden_dropout",
            "ffn_out_dropout",
        ),
        0.1,
    ),
)


def read(settings: Settings) -> ModelConfig:
    settings.require("is_encoder_decoder", True)
    settings.require("is_decoder", False)
    settings.require("tie_encoder_decoder", False)
    tied, scaled = _head(settings)
    fields = settings.fields(KEYS)
    depth = settings.get("num_decoder_layers", None)
    return ModelConfig(
        arch="encoder_decoder",
        num_decoder_layers=fields["num_layers"] if depth is None else depth,
        position=RelativeBias(
            num_buckets=settings.get("relative_attention_num_buckets", 32),
            max_distance=settings.get("relative_attention_max_distance", 128),
        ),
        norm=RMSNorm(eps=settings.get("layer_norm_epsilon", 1e-6)),
        residual=PreNorm(),
        ffn=_feed_forward(settings),
        ffn_bias=False,
        attention_scale=1.0,
        share_embeddings=True,
        tie_embeddings=tied,
        scale_head=scaled,
        **fields,
    )


def _head(settings: Settings) -> tuple[bool, bool]:
    """Whether the head is tied, and whether its input is scaled.

    Before transformers 5 a head was tied exactly if it was scaled. Since then
    `tie_word_embeddings` is written as true for any model, `scale_decoder_outputs` keeps what it
    had been, and a head that was stored by itself is not tied.
    """
    flag = settings.get("tie_word_embeddings", True)
    scaled = settings.get("scale_decoder_outputs", flag is not False)
    own = "lm_head.weight" in (settings.names or ())
    return bool(flag) and (bool(scaled) or not own), scaled


def _feed_forward(settings: Settings) -> FeedForward | GatedFeedForward:
    kind = settings.get("feed_forward_proj", "relu")
    gate, _, activation = kind.rpartition("-") if isinstance(kind, str) else ("?", "", "")
    if gate not in ("", "gated"):
        expected = "an activation, or gated- and an activation"
        raise ConfigError(f"feed_forward_proj: {kind!r} is not usable; it must be {expected}")
    implied = "gelu_new" if kind == "gated-gelu" else activation
    settings.require("is_gated_act", gate == "gated")
    variant = GatedFeedForward if gate else FeedForward
    return variant(activation=settings.activation("dense_act_fn", implied))


def write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.position, RelativeBias)
    activation = their_activation(config.ffn.activation)
    gated = isinstance(config.ffn, GatedFeedForward)
    # transformers reads "gated-gelu" as the tanh form, and knows the plain form by its own name.
    kind = "gelu" if gated and activation == "gelu_new" else activation
    return write_keys(KEYS, config) | {
        "d_kv": config.head_size,
        "num_decoder_layers": config.num_decoder_layers,
        "relative_attention_num_buckets": config.position.num_buckets,
        "relative_attention_max_distance": config.position.max_distance,
        "layer_norm_epsilon": config.norm.eps,
        "feed_forward_proj": f"gated-{kind}" if gated else kind,
        "dense_act_fn": activation,
        "is_gated_act": gated,
        "is_encoder_decoder": True,
        "tie_word_embeddings": config.tie_embeddings,
        "scale_decoder_outputs": config.scale_head,
    }


def layout(config: ModelConfig) -> Layout:
    copies = [Copy(f"{stack}.embed_tokens.weight", "shared.weight") for stack in _STACKS]
    if config.tie_embeddings:
        copies.append(Copy("lm_head.weight", "shared.weight"))
    # Early checkpoints hold a bias for cross attention, which no version uses.
    unused = (r"^decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$",)
    return Layout("t5", config, [_table(config)], copies, ignored=unused)


_STACKS = {"encoder": ["attn", "ffn"], "decoder": ["attn", "cross_attn", "ffn"]}


def _table(config: ModelConfig) -> Table:
    gated = isinstance(config.ffn, GatedFeedForward)
    inner = {"wi_0": "gate_proj", "wi_1": "up_proj"} if gated else {"wi": "up_proj"}
    modules = {
        "attn": ("SelfAttention", {name: f"{name}_proj" for name in "qkvo"}),
        "cross_attn": ("EncDecAttention", {name: f"{name}_proj" for name in "qkvo"}),
        "ffn": ("DenseReluDense", inner | {"wo": "down_proj"}),
    }
    table = [Same("shared.weight", "embed.weight"), Same("lm_head.weight", "lm_head.weight")]
    for stack, sublayers in _STACKS.items():
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        table.append(Same(bias, f"{stack}.rel_bias.weight"))
        for place, sublayer in enumerate(sublayers):
            theirs, ours = f"{stack}.block.{{i}}.layer.{place}", f"{stack}.layers.{{i}}"
            norm = f"{sublayer.removesuffix('_attn')}_norm"
            table.append(Same(f"{theirs}.layer_norm.weight", f"{ours}.{norm}.weight"))
            module, projections = modules[sublayer]
            table += [
                Same(f"{theirs}.{module}.{a}.weight", f"{ours}.{sublayer}.{b}.weight")
                for a, b in projections.items()
            ]
        table.append(Same(f"{stack}.final_layer_norm.weight", f"{stack}.final_norm.weight"))
    return table


FAMILY = Family(
    name="t5",
    model_type="t5",
    architectures=("T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"),
    slots={
        "position": (RelativeBias,),
        "norm": (RMSNorm,),
        "ffn": (FeedForward, GatedFeedForward),
    },
    read=read,
    write=write,
    layout=layout,
    architecture=lambda config: "T5ForConditionalGeneration",
)
