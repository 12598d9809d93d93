"""Attention masks: boolean, True = may attend, shaped [B, N, T, S] with 1 where they broadcast.

torch's own layers disagree among themselves: True blocks in `nn.MultiheadAttention`, True attends
in `F.scaled_dot_product_attention`. A token mask [B, T] is True where there is a token and False
at padding.
"""

import operator
from functools import reduce

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer_spec import config as spec


def causal_mask(
    queries: Int[Array, "T"], keys: Int[Array, "S"], window: int | None = None
) -> Bool[Array, "1 1 T S"]:
    """Query t sees keys up to t; with a window W, keys t - W + 1..t.

    Args:
        queries, keys: the index of each token in its text.

    Differences: a window of (left, right) = (W, 0) in flash-attention kernels counts keys beside
    the query's own: W + 1 in all.
    """
    back = queries[:, None] - keys
    seen = back >= 0 if window is None else (back >= 0) & (back < window)
    return seen[None, None]


def prefix_lm_mask(
    causal: Bool[Array, "1 1 T S"], prefix_mask: Bool[Array, "B S"]
) -> Bool[Array, "B 1 T S"]:
    """Every query sees the whole prefix of its row, and of the rest what is causal."""
    return causal | prefix_mask[:, None, None, :]


def decoder_mask(
    slot: spec.Causal | spec.PrefixLM,
    queries: Int[Array, "T"],
    keys: Int[Array, "S"],
    prefix_mask: Bool[Array, "B S"] | None,
) -> Bool[Array, "#B 1 T S"]:
    """Which keys a decoder's queries see under the mask slot of a layer.

    Raises:
        ValueError: a prefix is given and the slot is not PrefixLM.
    """
    match slot:
        case spec.Causal(window=window):
            if prefix_mask is not None:
                raise ValueError("prefix_mask: not usable under Causal; the mask must be PrefixLM")
            return causal_mask(queries, keys, window)
        case spec.PrefixLM():
            causal = causal_mask(queries, keys)
            return causal if prefix_mask is None else prefix_lm_mask(causal, prefix_mask)


def padding_mask(token_mask: Bool[Array, "B S"]) -> Bool[Array, "B 1 1 S"]:
    """Every query of a row sees that row's tokens and not its padding."""
    return token_mask[:, None, None, :]


def combine_masks(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """The conjunction of those given; None where none is: everything may attend."""
    given = [mask for mask in masks if mask is not None]
    return reduce(operator.and_, given) if given else None


def positions_from(token_mask: Bool[Array, "B T"]) -> Int[Array, "B T"]:
    """Each token's number among the tokens of its row: padding on the left shifts nothing."""
    return jnp.maximum(jnp.cumsum(token_mask.astype(jnp.int32), axis=1) - 1, 0)


def two_channel_positions(
    positions: Int[Array, "#B T"], prefix_mask: Bool[Array, "B S"]
) -> Int[Array, "B 2 T"]:
    """The place in the prefix, where the answer stays at the last; and the place in the answer.

    For a prefix of c tokens: t and 0 at t < c, then c - 1 and t - c + 1. The prefix ends with the
    mask token that the answer is to fill, and the answer begins with its start token.

    Source: ChatGLM-6B's own code; Du et al. 2022, section 2.2.
    """
    length = prefix_mask.sum(axis=1, keepdims=True)
    place = jnp.minimum(positions, jnp.maximum(length - 1, 0))
    return jnp.stack([place, jnp.maximum(positions - length + 1, 0)], axis=1)


def check_mask(mask: Array, shape: tuple[int, int, int, int], name: str = "mask") -> None:
    """Raise ValueError unless `mask` is boolean and broadcasts to [B, N, T, S]."""
    if mask.dtype != jnp.bool_:
        raise ValueError(f"{name}: dtype {mask.dtype} is not usable; it must be bool")
    fits = mask.ndim == 4 and all(m in (1, s) for m, s in zip(mask.shape, shape, strict=True))
    if not fits:
        raise ValueError(f"{name}: shape {tuple(mask.shape)} does not broadcast to {shape}")


def check_token_mask(token_mask: Array, shape: tuple[int, ...], name: str) -> None:
    """Raise ValueError unless `token_mask` is boolean and has the shape of its tokens."""
    if token_mask.dtype != jnp.bool_:
        raise ValueError(f"{name}: dtype {token_mask.dtype} is not usable; it must be bool")
    if tuple(token_mask.shape) != shape:
        raise ValueError(f"{name}: shape {tuple(token_mask.shape)} is not usable; expected {shape}")
