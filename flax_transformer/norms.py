"""Normalization over the features of each token. Statistics are taken in float32 or wider."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer_spec import config as spec


def widen(x: Array) -> Array:
    """`x` in float32, or in its own type where that is wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


class LayerNorm(nn.Module):
    """y = (x - mean) / sqrt(var + eps) * scale + bias, with var = mean((x - mean)**2).

    Args:
        features: D, the width of the last axis.
        eps: added inside the root.
    Source: Ba et al. 2016, equation 3.
    Differences: `nn.LayerNorm` of Linen defaults to eps 1e-6 and to the one-pass variance
    mean(x**2) - mean(x)**2, which loses digits where |mean| is large; torch defaults to 1e-5 and
    takes the variance in two passes, as here.
    """

    features: int
    eps: float

    def setup(self):
        self.scale = self.param("scale", nn.initializers.ones, (self.features,), jnp.float32)
        self.bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        wide = widen(x)
        centered = wide - wide.mean(-1, keepdims=True)
        variance = jnp.square(centered).mean(-1, keepdims=True)
        normed = centered / jnp.sqrt(variance + self.eps)
        return (normed * self.scale + self.bias).astype(x.dtype)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x**2) + eps) * (offset + scale), rounded to x's type once, at the end.

    Args:
        features: D, the width of the last axis.
        eps: added inside the root.
        offset: 1 where the parameter is the distance of the weight from 1 (Gemma), else 0.
    Source: Zhang and Sennrich 2019, equation 4.
    Differences: `F.rms_norm` of torch has eps = machine epsilon by default, and LLaMA's own code
    rounds x / rms to x's type before it multiplies by the weight.
    """

    features: int
    eps: float
    offset: float = 0.0

    def setup(self):
        start = nn.initializers.constant(1 - self.offset)
        self.scale = self.param("scale", start, (self.features,), jnp.float32)

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        wide = widen(x)
        mean_square = jnp.square(wide).mean(-1, keepdims=True)
        normed = wide / jnp.sqrt(mean_square + self.eps)
        return (normed * (self.offset + widen(self.scale))).astype(x.dtype)


class StdLayerNorm(nn.Module):
    """y = (x - mean) / (std + eps) * scale + bias, with std**2 = sum((x - mean)**2) / (D - 1).

    The hand-written layer of many tutorials: it differs from LayerNorm by the unbiased standard
    deviation and by eps outside the root. A constant row gives the bias; its gradient with respect
    to x, undefined in the formula, is that of (x - mean) / eps.

    Args:
        features: D, at least 2.
        eps: added to the standard deviation.
    Source: the Annotated Transformer (Rush 2018).
    """

    features: int
    eps: float

    def setup(self):
        self.scale = self.param("scale", nn.initializers.ones, (self.features,), jnp.float32)
        self.bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        wide = widen(x)
        centered = wide - wide.mean(-1, keepdims=True)
        variance = jnp.square(centered).sum(-1, keepdims=True) / (self.features - 1)
        spread = variance > 0
        # The slope of the root at 0 is infinite; the inner where keeps it out of the gradient.
        std = jnp.where(spread, jnp.sqrt(jnp.where(spread, variance, 1.0)), 0.0)
        return (centered / (std + self.eps) * self.scale + self.bias).astype(x.dtype)


def make_norm(slot: spec.LayerNorm | spec.RMSNorm | spec.StdLayerNorm, features: int) -> nn.Module:
    """The layer of `features` that fills the norm slot."""
    match slot:
        case spec.LayerNorm(eps=eps):
            return LayerNorm(features, eps)
        case spec.RMSNorm(eps=eps, offset=offset):
            return RMSNorm(features, eps, offset)
        case spec.StdLayerNorm(eps=eps):
            return StdLayerNorm(features, eps)
