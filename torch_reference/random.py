"""jax.random's streams in torch: the same key gives the same numbers, on every device.

A key is two words. Random bits are Threefry-2x32 of a counter under the key, so that number n of a
stream depends on the key and on n alone. Bits, and all that exact arithmetic makes of them, are
jax's bit for bit; where a transcendental function is involved they are within 4 units in the last
place.

Source: Salmon et al. 2011, section 3.2 (Threefry); Claessen and Palka 2013 (keys that split);
counters are laid out as jax does from 0.5 on (`jax_threefry_partitionable`).
Differences: torch's own generators hold a state that every draw moves on, and give other numbers on
other devices.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int32
from torch import Tensor

from torch_reference.erfinv import erfinv

# Two words, as the int32 of the same bits: torch has no arithmetic on uint32, and int32's wraps.
Key = Int32[Tensor, "2"]
# On a CPU, so many elements at a time stay in a core's cache through all twenty rounds.
BLOCK = 1 << 14
_WORD = 0xFFFFFFFF


def key(seed: int, device: torch.device | None = None) -> Key:
    """`jax.random.key(seed)`, for seeds below 2**32: those that jax takes without x64 too."""
    return torch.tensor([0, seed], device=device).to(torch.int32)


def fresh(device: torch.device | None = None) -> Key:
    """A key from torch's own generator."""
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int64, device=device).to(torch.int32)


def threefry(
    under: Key, x: Int32[Tensor, "*S"], y: Int32[Tensor, "*S"]
) -> tuple[Int32[Tensor, "*S"], Int32[Tensor, "*S"]]:
    """Twenty rounds of Threefry-2x32 on the counters (x, y)."""
    words = (under[0], under[1], under[0] ^ under[1] ^ 0x1BD11BDA)
    x, y = x + words[0], y + words[1]
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x += y
            y = _rotated(y, turn).bitwise_xor_(x)
        x += words[(i + 1) % 3]
        y += words[(i + 2) % 3] + (i + 1)
    return x, y


def _rotated(x: Tensor, turn: int) -> Tensor:
    # A shift to the right copies the sign bit; the mask takes the copies away. The two halves have
    # no bit in common, so that their sum, which is one pass with the other shift, is their union.
    low = (x >> (32 - turn)).bitwise_and_((1 << turn) - 1)
    return low.add_(x, alpha=1 << turn)


def split(under: Key, num: int = 2) -> Int32[Tensor, "N 2"]:
    """`jax.random.split`: `num` new keys."""
    return torch.stack(_words(under, (num,)), dim=-1)


def fold_in(under: Key, data: int | Int[Tensor, "*S"]) -> Int32[Tensor, "*S 2"]:
    """`jax.random.fold_in`: a new key for a number below 2**32, or for each of several."""
    low = torch.as_tensor(data, device=under.device).to(torch.int32)
    return torch.stack(threefry(under, torch.zeros_like(low), low), dim=-1)


def _words(under: Key, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Both words of the counters 0, 1, 2, ... under the key."""
    index = torch.arange(math.prod(shape), device=under.device)
    size = BLOCK if under.device.type == "cpu" else max(index.numel(), 1)
    parts = [
        threefry(under, (part >> 32).to(torch.int32), part.to(torch.int32))
        for part in index.split(size)
    ]
    x, y = (torch.cat(word).reshape(tuple(shape)) for word in zip(*parts, strict=True))
    return x, y


def bits(under: Key, shape: Sequence[int]) -> Int32[Tensor, "..."]:
    """`jax.random.bits`: 32 of them in each element, as int32."""
    x, y = _words(under, shape)
    return x ^ y


def uniform(
    under: Key,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "..."]:
    """`jax.random.uniform`: in [low, high), from the 23 or 52 upper bits of a word or of two."""
    x, y = _words(under, shape)
    if dtype == torch.float32:
        mantissa = ((x ^ y) >> 9) & ((1 << 23) - 1)
        unit = (mantissa | 0x3F800000).view(torch.float32) - 1
    else:
        both = (x.long() << 32) | (y.long() & _WORD)
        unit = (((both >> 12) & ((1 << 52) - 1)) | 0x3FF << 52).view(torch.float64) - 1
    least, most = (torch.tensor(bound, dtype=dtype, device=under.device) for bound in (low, high))
    return torch.maximum(least, _fused(unit, most - least, least))


def _fused(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x y + z, rounded once: XLA contracts the two operations wherever the machine can.

    Source: Dekker 1971 (the error of a product), Knuth 1969 (the error of a sum).
    """
    if x.dtype == torch.float32:
        return (x.double() * y.double() + z.double()).float()
    product, total = x * y, x * y + z
    (x1, x2), (y1, y2) = _halves(x), _halves(y)
    off_product = ((x1 * y1 - product) + x1 * y2 + x2 * y1) + x2 * y2
    back = total - product
    off_total = (product - (total - back)) + (z - back)
    return total + (off_product + off_total)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    upper = x * (2**27 + 1) - (x * (2**27 + 1) - x)
    return upper, x - upper


def normal(
    under: Key, shape: Sequence[int], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "..."]:
    """`jax.random.normal`: sqrt(2) erfinv(u) for u in (-1, 1)."""
    return _quantiles(uniform(under, shape, dtype, _after(-1.0, 0.0, dtype)))


def truncated_normal(
    under: Key, low: float, high: float, shape: Sequence[int], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "..."]:
    """`jax.random.truncated_normal`: normal, given that it is in (low, high)."""
    ends = [float(torch.erf(torch.tensor(bound / 2**0.5, dtype=dtype))) for bound in (low, high)]
    found = _quantiles(uniform(under, shape, dtype, *ends))
    return found.clamp(_after(low, math.inf, dtype), _after(high, -math.inf, dtype))


def _quantiles(u: Tensor) -> Tensor:
    return torch.tensor(2.0, dtype=u.dtype).sqrt().to(u.device) * erfinv(u)


def _after(value: float, toward: float, dtype: torch.dtype) -> float:
    exact = np.float32 if dtype == torch.float32 else np.float64
    return float(np.nextafter(exact(value), exact(toward)))


def bernoulli(under: Key, p: float, shape: Sequence[int]) -> Bool[Tensor, "..."]:
    """`jax.random.bernoulli` of a float32 p: True with probability p, in steps of 2**-23."""
    return uniform(under, shape) < torch.tensor(p, dtype=torch.float32)


def categorical(under: Key, logits: Float[Tensor, "*B V"]) -> Int[Tensor, "*B"]:
    """`jax.random.categorical`: an id with probability softmax(logits), by Gumbel's maximum."""
    tiny = torch.finfo(logits.dtype).tiny
    u = uniform(under, logits.shape, logits.dtype, tiny)
    return (logits - (-u.log()).log()).argmax(dim=-1)


def permutation(under: Key, length: int) -> Int[Tensor, "T"]:
    """`jax.random.permutation` of 0..length - 1: sorted by random words, more than once if long."""
    order = torch.arange(length, device=under.device)
    for _ in range(math.ceil(3 * math.log(max(1, length)) / math.log(_WORD))):
        under, fresh = split(under)
        words = bits(fresh, (length,)).long() & _WORD
        order = order[words.argsort(stable=True)]
    return order
