"""Dropout: which values survive is a pure function of a key."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from transformer_spec import streams


def survivors(key: Key[Array, ""], rate: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """True with probability 1 - rate: `jax.random.bernoulli(key, jnp.float32(1 - rate), shape)`."""
    index = jax.lax.iota(jnp.uint32, math.prod(shape))
    x, y = streams.threefry(jax.random.key_data(key), jnp.zeros(1, jnp.uint32), index)
    # jax takes a float32 uniform from the upper 23 bits of a word.
    return ((x ^ y) >> 9 < round((1 - rate) * 2**23)).reshape(shape)


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
