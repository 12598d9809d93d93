"""jax.random's bits in torch: the same key gives the same bits, on every device.

A key is two words. Random bits are Threefry-2x32 of a counter under the key, so that number n of a
stream depends on the key and on n alone.

Source: Salmon et al. 2011, section 3.2 (Threefry); Claessen and Palka 2013 (keys that are folded);
counters are laid out as jax does from 0.5 on (`jax_threefry_partitionable`).
Differences: torch's own generators hold a state that every draw moves on, and give other numbers on
other devices. `transformer_spec.streams` has the rounds for arrays of unsigned words, which torch
cannot add or shift.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Int, Int32
from torch import Tensor

# Two words, as the int32 of the same bits: torch has no arithmetic on uint32, and int32's wraps.
Key = Int32[Tensor, "2"]
# On a CPU, so many elements at a time stay in a core's cache through all twenty rounds.
BLOCK = 1 << 14


def key(seed: int, device: torch.device | None = None) -> Key:
    """`jax.random.key(seed)`, for seeds below 2**32: those that jax takes without x64 too."""
    return torch.tensor([0, seed], device=device).to(torch.int32)


def fresh_key(device: torch.device | None = None) -> Key:
    """A key from torch's own generator."""
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int64, device=device).to(torch.int32)


def threefry(
    under: Key, x: Int32[Tensor, "*S"], y: Int32[Tensor, "*S"]
) -> tuple[Int32[Tensor, "*S"], Int32[Tensor, "*S"]]:
    """Twenty rounds of Threefry-2x32 on the counters (x, y)."""
    words = (under[0], under[1], under[0] ^ under[1] ^ 0x1BD11BDA)
    x, y = x + words[0], y + words[1]
    for i in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x += y
            y = _rotated(y, distance).bitwise_xor_(x)
        x += words[(i + 1) % 3]
        y += words[(i + 2) % 3] + (i + 1)
    return x, y


def _rotated(x: Tensor, distance: int) -> Tensor:
    # A shift to the right copies the sign bit; the mask takes the copies away. The two halves have
    # no bit in common, so that their sum, which is one pass with the other shift, is their union.
    low = (x >> (32 - distance)).bitwise_and_((1 << distance) - 1)
    return low.add_(x, alpha=1 << distance)


def fold_in(under: Key, data: int | Int[Tensor, "*S"]) -> Int32[Tensor, "*S 2"]:
    """`jax.random.fold_in`: a new key for a number below 2**32, or for each of several."""
    low = torch.as_tensor(data, device=under.device).to(torch.int32)
    return torch.stack(threefry(under, torch.zeros_like(low), low), dim=-1)


def bits(under: Key, shape: Sequence[int]) -> Int32[Tensor, "..."]:
    """`jax.random.bits`: 32 of them in each element, as int32."""
    index = torch.arange(math.prod(shape), device=under.device)
    size = BLOCK if under.device.type == "cpu" else max(index.numel(), 1)
    parts = []
    for part in index.split(size):
        x, y = threefry(under, (part >> 32).to(torch.int32), part.to(torch.int32))
        parts.append(x ^ y)
    return torch.cat(parts).reshape(tuple(shape))
