"""Random streams: Threefry's words for a key, and which key belongs to a name.

A key is two words of 32 bits, and number n of its stream depends on the key and on n alone.

Source: Salmon et al. 2011, section 3.2 (Threefry); Claessen and Palka 2013 (keys that are folded).
"""

import hashlib
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformer_spec.naming import linen_path

Words = NDArray[np.uint32]
# Of NumPy or jax, uint32.
Array = TypeVar("Array", bound=Any)


def threefry(key: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Twenty rounds of Threefry-2x32 on the counters (x, y).

    Args:
        key: [2].
        x, y: of one shape. `jax.random` counts in y, and in x only beyond 2**32 numbers.
    Differences: on a CPU jax runs the rounds as a loop over arrays in memory; written out they
        become one fused loop over the elements where they are compiled, several times faster.
    """
    # Slices: NumPy warns of an overflow in a number, where a word of an array wraps in silence.
    words = (key[:1], key[1:], key[:1] ^ key[1:] ^ 0x1BD11BDA)
    x, y = x + words[0], y + words[1]
    for i in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x += y
            low = y >> (32 - distance)
            y <<= distance
            y |= low
            y ^= x
        x += words[(i + 1) % 3]
        y += words[(i + 2) % 3] + (i + 1)
    return x, y


def seed_key(seed: int) -> Words:
    """`jax.random.key(seed)`, for seeds below 2**32: those that jax takes without x64 too."""
    return np.array([0, seed], np.uint32)


def fold_in(key: Words, data: int) -> Words:
    """`jax.random.fold_in`: a new key for a number below 2**32."""
    return np.concatenate(threefry(key, np.zeros(1, np.uint32), np.array([data], np.uint32)))


def split(key: Words) -> tuple[Words, Words]:
    """`jax.random.split`, as it is from jax 0.5 on (`jax_threefry_partitionable`)."""
    return fold_in(key, 0), fold_in(key, 1)


def uniform(key: Words, start: int, stop: int) -> NDArray[np.float64]:
    """Numbers `start` to `stop` - 1 of a stream: (k + 1/2) / 2**52 for an integer k below 2**52.

    k is the upper bits of both words. 0 and 1 do not occur, u and 1 - u are equally likely, and
    u - 1/2 and 1 - u are exact in float64.

    Differences: `jax.random.uniform` gives k / 2**52 in float64; in float32 it takes 23 other bits.
    """
    counter = np.arange(start, stop, dtype=np.uint64)
    x, y = threefry(key, (counter >> 32).astype(np.uint32), counter.astype(np.uint32))
    k = ((x.astype(np.uint64) << 32) | y) >> 12
    return (k.astype(np.float64) + 0.5) * 2.0**-52


def number(*path: str | int) -> int:
    """The number below 2**32 that Linen folds into a key for a path of names and counts.

    The first four bytes of the SHA-1 of all parts, strings as UTF-8 and numbers as their bytes.

    Source: `flax.core.scope`, `_fold_in_static`; a test holds this against the installed Flax.
    """
    parts = (
        part.encode() if isinstance(part, str) else part.to_bytes((part.bit_length() + 7) // 8)
        for part in path
    )
    return int.from_bytes(hashlib.sha1(b"".join(parts)).digest()[:4])


@cache  # asked for at every update
def first_call(module: str) -> int:
    """The number of the first `make_rng` in a module of this torch name."""
    return number(*linen_path(module), 1)
