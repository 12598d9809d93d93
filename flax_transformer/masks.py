"""Attention masks: boolean, True = may attend, shaped [B, N, T, S] with 1 where they broadcast.

torch's own layers disagree among themselves: True blocks in `nn.MultiheadAttention`, True attends
in `F.scaled_dot_product_attention`. A token mask [B, T] is True where there is a token and False
at padding.
"""

import operator
from functools import reduce

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def causal_mask(length: int) -> Bool[Array, "1 1 T T"]:
    """Query t sees keys 0..t."""
    return jnp.tril(jnp.ones((length, length), bool))[None, None]


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
