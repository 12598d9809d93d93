"""The parameters a ModelConfig has: every name and shape, written out without a framework.

Names are the torch twin's (`decoder.layers.0.attn.q_proj.weight`), shapes too: a weight is
[out, in]. The Flax twin has the same parameters under the rule of `transformer_spec.naming`.
"""

import math
from collections.abc import Iterator

from transformer_spec.config import (
    GatedFeedForward,
    LayerNorm,
    Learned,
    MixtureOfExperts,
    ModelConfig,
    RelativeBias,
    SandwichNorm,
    StdLayerNorm,
)
from transformer_spec.fields import ConfigError

Shapes = Iterator[tuple[str, tuple[int, ...]]]
# More than any published model has.
MAX_LAYERS, MAX_EXPERTS = 1_000, 100_000


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every trained parameter. A tied head owns none."""
    return dict(_model(config))


def check_counts(config: ModelConfig) -> None:
    """Refuse a config, of unknown origin, whose names alone could take any amount of memory.

    Raises:
        ConfigError: it has more layers or experts than any published model.
    """
    layers = config.num_layers + (config.num_decoder_layers or 0)
    experts = config.ffn.num_experts if isinstance(config.ffn, MixtureOfExperts) else 1
    if layers > MAX_LAYERS or layers * experts > MAX_EXPERTS:
        raise ConfigError(
            f"config.json asks for {layers:,} layers of {experts:,} experts; it may have "
            f"{MAX_LAYERS:,} layers, and {MAX_EXPERTS:,} experts in all"
        )


def count(config: ModelConfig) -> int:
    """The number of trained scalars."""
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


def is_norm(name: str) -> bool:
    return name.split(".")[-2].endswith("norm")


def is_embedding(name: str) -> bool:
    """Whether its rows are looked up: tokens, positions, segments, T5's buckets of distance."""
    return name.split(".")[-2].endswith(("embed", "rel_bias"))


def is_bias(name: str) -> bool:
    return name.endswith(".bias")


def is_decayed(name: str) -> bool:
    """Whether weight decay applies by default: to matrices, not to norms, biases or embeddings.

    A rule on names: a rule on the number of axes fails once layers are stacked.
    """
    return not (is_norm(name) or is_embedding(name) or is_bias(name))


def _model(c: ModelConfig) -> Shapes:
    match c.arch:
        case "encoder":
            prefix = "encoder." if has_heads(c) else ""
            yield from _stack(prefix, c, c.num_layers, cross=False)
            yield from _encoder_heads(c)
        case "decoder":
            yield from _stack("decoder.", c, c.num_layers, cross=False)
        case "encoder_decoder":
            if c.share_embeddings:
                yield "embed.weight", (c.vocab_size, c.d_model)
            yield from _stack("encoder.", c, c.num_layers, cross=False)
            yield from _stack("decoder.", c, c.num_decoder_layers or 0, cross=True)
    if c.arch != "encoder" or c.masked_lm:
        yield from _lm_head(c)


def has_heads(c: ModelConfig) -> bool:
    """Whether an encoder carries more than its stack."""
    return c.masked_lm or c.pooler


def _encoder_heads(c: ModelConfig) -> Shapes:
    if c.pooler:
        yield from _linear("pooler", c.d_model, c.d_model, bias=True)
    if c.next_sentence:
        yield from _linear("sentence_head", c.d_model, 2, bias=True)
    if c.masked_lm:
        yield from _linear("lm_transform", c.d_model, c.d_model, bias=True)
        yield from _norm("lm_norm", c, c.d_model)


def _lm_head(c: ModelConfig) -> Shapes:
    if not c.tie_embeddings:
        yield "lm_head.weight", (c.vocab_size, c.d_model)
    if c.head_bias:
        yield "lm_head.bias", (c.vocab_size,)


def _stack(prefix: str, c: ModelConfig, depth: int, cross: bool) -> Shapes:
    if not c.share_embeddings:
        yield f"{prefix}embed.weight", (c.vocab_size, c.d_model)
    if isinstance(c.position, Learned):
        yield f"{prefix}pos_embed.weight", (c.max_seq_len, c.d_model)
    if c.num_token_types:
        yield f"{prefix}type_embed.weight", (c.num_token_types, c.d_model)
    if c.embed_norm:
        yield from _norm(f"{prefix}embed_norm", c, c.d_model)
    if isinstance(c.position, RelativeBias):
        yield f"{prefix}rel_bias.weight", (c.position.num_buckets, c.num_heads)
    for i in range(depth):
        yield from _block(f"{prefix}layers.{i}.", c, cross)
    if c.has_final_norm:
        yield from _norm(f"{prefix}final_norm", c, c.d_model)


def _block(prefix: str, c: ModelConfig, cross: bool) -> Shapes:
    for sublayer, name in [("attn", "attn"), ("cross_attn", "cross")][: 1 + cross]:
        yield from _norms(prefix + name, c)
        yield from _attention(f"{prefix}{sublayer}.", c)
    yield from _norms(f"{prefix}ffn", c)
    yield from _feed_forward(f"{prefix}ffn.", c)


def _norms(sublayer: str, c: ModelConfig) -> Shapes:
    yield from _norm(f"{sublayer}_norm", c, c.d_model)
    if isinstance(c.residual, SandwichNorm):
        yield from _norm(f"{sublayer}_out_norm", c, c.d_model)


def _feed_forward(prefix: str, c: ModelConfig) -> Shapes:
    if isinstance(c.ffn, MixtureOfExperts):
        experts = c.ffn.num_experts
        yield f"{prefix}router.weight", (experts, c.d_model)
        yield f"{prefix}gate_proj.weight", (experts, c.d_ff, c.d_model)
        yield f"{prefix}up_proj.weight", (experts, c.d_ff, c.d_model)
        yield f"{prefix}down_proj.weight", (experts, c.d_model, c.d_ff)
        return
    if isinstance(c.ffn, GatedFeedForward):
        yield from _linear(f"{prefix}gate_proj", c.d_model, c.d_ff, c.ffn_bias)
    yield from _linear(f"{prefix}up_proj", c.d_model, c.d_ff, c.ffn_bias)
    yield from _linear(f"{prefix}down_proj", c.d_ff, c.d_model, c.ffn_bias)


def _attention(prefix: str, c: ModelConfig) -> Shapes:
    queries, keys = c.num_heads * c.head_size, c.kv_heads * c.head_size
    yield from _linear(f"{prefix}q_proj", c.d_model, queries, c.qkv_bias)
    yield from _linear(f"{prefix}k_proj", c.d_model, keys, c.qkv_bias)
    yield from _linear(f"{prefix}v_proj", c.d_model, keys, c.qkv_bias)
    for name in ("q_norm", "k_norm") if c.qk_norm else ():
        yield from _norm(prefix + name, c, c.head_size)
    yield from _linear(f"{prefix}o_proj", queries, c.d_model, c.out_bias)


def _linear(name: str, width_in: int, width_out: int, bias: bool) -> Shapes:
    yield f"{name}.weight", (width_out, width_in)
    if bias:
        yield f"{name}.bias", (width_out,)


def _norm(name: str, c: ModelConfig, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    if isinstance(c.norm, LayerNorm | StdLayerNorm):
        yield f"{name}.bias", (width,)
