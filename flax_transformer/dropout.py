"""Dropout: which values survive is a pure function of a key."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, UInt32


def threefry(key: UInt32[Array, "2"], low: UInt32[Array, "*S"]) -> UInt32[Array, "*S"]:
    """The bits `jax.random.bits` gives to the elements of flat index `low`, below 2**32.

    Twenty rounds of Threefry-2x32 on the counter (0, low), both output words xored.

    Source: Salmon et al. 2011, section 3.2.
    Differences: on a CPU jax runs the rounds as a loop over arrays in memory; written out they
    become one fused loop over the elements, several times faster, with the same bits.
    """
    words = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x, y = jnp.broadcast_to(words[0], low.shape), low + words[1]
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = x + y
            y = x ^ ((y << jnp.uint32(turn)) | (y >> jnp.uint32(32 - turn)))
        x = x + words[(i + 1) % 3]
        y = y + words[(i + 2) % 3] + jnp.uint32(i + 1)
    return x ^ y


def survivors(key: Key[Array, ""], rate: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """True with probability 1 - rate: `jax.random.bernoulli(key, jnp.float32(1 - rate), shape)`."""
    size = 1
    for length in shape:
        size *= length
    index = jax.lax.iota(jnp.uint32, size).reshape(shape)
    # A float32 uniform is the upper 23 bits of a word.
    return (threefry(jax.random.key_data(key), index) >> jnp.uint32(9)) < jnp.uint32(
        round((1 - rate) * 2**23)
    )


class Dropout(nn.Module):
    """y = x * survives / (1 - rate) in training, y = x in evaluation.

    Args:
        rate: the probability that a value becomes 0 (Keras and torch too name this one; the
            `keep_prob` of old TensorFlow is 1 - rate).
    Source: Srivastava et al. 2014, section 4, scaled in training instead of in evaluation.
    """

    rate: float

    def __call__(self, x: Float[Array, "*S"], *, deterministic: bool) -> Float[Array, "*S"]:
        if deterministic or self.rate == 0:
            return x
        keep = survivors(self.make_rng("dropout"), self.rate, x.shape)
        return jnp.where(keep, x / (1 - self.rate), 0.0)
