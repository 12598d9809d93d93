"""Attention masks: boolean, True = may attend, shaped [B, N, T, S] with 1 where they broadcast.

torch's own layers disagree among themselves: True blocks in `nn.MultiheadAttention`, True attends
in `F.scaled_dot_product_attention`. A token mask [B, T] is True where there is a token and False
at padding.
"""

import operator
from functools import reduce

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 T T"]:
    """Query t sees keys 0..t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def padding_mask(token_mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
    """Every query of a row sees that row's tokens and not its padding."""
    return token_mask[:, None, None, :]


def combine_masks(*masks: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """The conjunction of those given; None where none is: everything may attend."""
    given = [mask for mask in masks if mask is not None]
    return reduce(operator.and_, given) if given else None


def positions_from(token_mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Each token's number among the tokens of its row: padding on the left shifts nothing."""
    return (token_mask.long().cumsum(dim=1) - 1).clamp(min=0)


def check_mask(mask: Tensor, shape: tuple[int, int, int, int], name: str = "mask") -> None:
    """Raise ValueError unless `mask` is boolean and broadcasts to [B, N, T, S]."""
    if mask.dtype != torch.bool:
        raise ValueError(f"{name}: dtype {_short(mask)} is not usable; it must be bool")
    fits = mask.ndim == 4 and all(m in (1, s) for m, s in zip(mask.shape, shape, strict=True))
    if not fits:
        raise ValueError(f"{name}: shape {tuple(mask.shape)} does not broadcast to {shape}")


def check_token_mask(token_mask: Tensor, shape: tuple[int, ...], name: str) -> None:
    """Raise ValueError unless `token_mask` is boolean and has the shape of its tokens."""
    if token_mask.dtype != torch.bool:
        raise ValueError(f"{name}: dtype {_short(token_mask)} is not usable; it must be bool")
    if tuple(token_mask.shape) != shape:
        raise ValueError(f"{name}: shape {tuple(token_mask.shape)} is not usable; expected {shape}")


def _short(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
