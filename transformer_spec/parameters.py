"""The parameters a ModelConfig has: every name and shape, written out without a framework.

Names are the torch twin's (`decoder.layers.0.attn.q_proj.weight`), shapes too: a weight is
[out, in]. The Flax twin has the same parameters under the rule of `parity.bridge`.
"""

import math
from collections.abc import Iterator

from transformer_spec.config import (
    GatedFeedForward,
    LayerNorm,
    Learned,
    ModelConfig,
    PreNorm,
    StdLayerNorm,
)

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every trained parameter. A tied head owns none."""
    return dict(_model(config))


def count(config: ModelConfig) -> int:
    """The number of trained scalars."""
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


def is_norm(name: str) -> bool:
    return name.split(".")[-2].endswith("norm")


def is_embedding(name: str) -> bool:
    return name.split(".")[-2].endswith("embed")


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
            yield from _stack("", c, c.num_layers, cross=False)
        case "decoder":
            yield from _stack("decoder.", c, c.num_layers, cross=False)
        case "encoder_decoder":
            if c.share_embeddings:
                yield "embed.weight", (c.vocab_size, c.d_model)
            yield from _stack("encoder.", c, c.num_layers, cross=False)
            yield from _stack("decoder.", c, c.num_decoder_layers or 0, cross=True)
    if c.arch != "encoder" and not c.tie_embeddings:
        yield from _linear("lm_head", c.d_model, c.vocab_size, c.head_bias)


def _stack(prefix: str, c: ModelConfig, depth: int, cross: bool) -> Shapes:
    if not c.share_embeddings:
        yield f"{prefix}embed.weight", (c.vocab_size, c.d_model)
    if isinstance(c.position, Learned):
        yield f"{prefix}pos_embed.weight", (c.max_seq_len, c.d_model)
    for i in range(depth):
        yield from _block(f"{prefix}layers.{i}.", c, cross)
    if isinstance(c.residual, PreNorm):
        yield from _norm(f"{prefix}final_norm", c)


def _block(prefix: str, c: ModelConfig, cross: bool) -> Shapes:
    for attn, norm in [("attn", "attn_norm"), ("cross_attn", "cross_norm")][: 1 + cross]:
        yield from _norm(prefix + norm, c)
        yield from _attention(f"{prefix}{attn}.", c)
    yield from _norm(f"{prefix}ffn_norm", c)
    if isinstance(c.ffn, GatedFeedForward):
        yield from _linear(f"{prefix}ffn.gate_proj", c.d_model, c.d_ff, c.ffn_bias)
    yield from _linear(f"{prefix}ffn.up_proj", c.d_model, c.d_ff, c.ffn_bias)
    yield from _linear(f"{prefix}ffn.down_proj", c.d_ff, c.d_model, c.ffn_bias)


def _attention(prefix: str, c: ModelConfig) -> Shapes:
    queries, keys = c.num_heads * c.head_size, c.kv_heads * c.head_size
    yield from _linear(f"{prefix}q_proj", c.d_model, queries, c.qkv_bias)
    yield from _linear(f"{prefix}k_proj", c.d_model, keys, c.qkv_bias)
    yield from _linear(f"{prefix}v_proj", c.d_model, keys, c.qkv_bias)
    yield from _linear(f"{prefix}o_proj", queries, c.d_model, c.out_bias)


def _linear(name: str, width_in: int, width_out: int, bias: bool) -> Shapes:
    yield f"{name}.weight", (width_out, width_in)
    if bias:
        yield f"{name}.bias", (width_out,)


def _norm(name: str, c: ModelConfig) -> Shapes:
    yield f"{name}.weight", (c.d_model,)
    if isinstance(c.norm, LayerNorm | StdLayerNorm):
        yield f"{name}.bias", (c.d_model,)
