"""How order enters: vectors added to embeddings, rotations of queries and keys, score biases."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flax_transformer.norms import widen
from transformer_spec import config as spec
from transformer_spec.distances import alibi_slopes, distance_buckets
from transformer_spec.rotary import BLOCK, amplitude, frequencies, rotation_tables

# cos and sin of every angle, [B or 1, T, C, P]: P pairs of dimensions in each of C channels.
Rotation = tuple[Float[Array, "#B T C P"], Float[Array, "#B T C P"]]


def sinusoidal_table(max_seq_len: int, d_model: int) -> np.ndarray:
    """P[t, 2i] = sin(t / 10000**(2i / D)), P[t, 2i + 1] = cos(t / 10000**(2i / D)), in float64.

    Taken in double precision and rounded at use: a float32 angle near 5,000 has an error of 2e-4.

    Source: Vaswani et al. 2017, section 3.5. Tensor2Tensor's own code differs: it puts all sines
    before all cosines and spaces the frequencies over D/2 - 1 intervals.
    """
    even = np.arange(0, d_model, 2)
    angles = np.arange(max_seq_len)[:, None] / 10000.0 ** (even / d_model)
    table = np.empty((max_seq_len, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


class Sinusoidal(nn.Module):
    """Rows of the sinusoidal table; no parameters."""

    max_seq_len: int
    d_model: int

    def __call__(self, positions: Int[Array, "*B T"]) -> Float[Array, "*B T D"]:
        # As wide as the session allows; the sum with the embeddings rounds it to their type.
        table = jnp.asarray(sinusoidal_table(self.max_seq_len, self.d_model))
        return table[positions]


class RotaryTable(nn.Module):
    """cos(f_i t) and sin(f_i t) for positions t and the pairs' frequencies f_i; no parameters.

    Args:
        frequencies: [P], from `transformer_spec.rotary.frequencies`.
        max_seq_len: positions are below it.
        amplitude: multiplies both (YaRN's attention factor, else 1).
    """

    frequencies: tuple[float, ...]
    max_seq_len: int
    amplitude: float

    def __call__(self, positions: Int[Array, "B T C"]) -> Rotation:
        starts, within = rotation_tables(np.array(self.frequencies), self.max_seq_len)
        block, rest = positions // BLOCK, positions % BLOCK
        cos_a, sin_a = jnp.asarray(self.amplitude * starts)[:, block]
        cos_b, sin_b = jnp.asarray(within)[:, rest]
        return cos_a * cos_b - sin_a * sin_b, sin_a * cos_b + cos_a * sin_b


def rotate(
    x: Float[Array, "B T N H"], rotation: Rotation, interleaved: bool
) -> Float[Array, "B T N H"]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for every pair; a head's other dimensions stay.

    Args:
        interleaved: pairs are neighbours; else a channel's first half is paired with its second.
    Source: Su et al. 2021, equation 34; Black et al. 2022 (halves, a part of each head).
    """
    wide = widen(x)
    cos, sin = (part[:, :, None].astype(wide.dtype) for part in rotation)
    channels, pairs = cos.shape[-2:]
    width = 2 * channels * pairs
    paired = wide[..., :width].reshape(
        *x.shape[:-1], channels, *((pairs, 2) if interleaved else (2, pairs))
    )
    axis = -1 if interleaved else -2
    a, b = (part.squeeze(axis) for part in jnp.split(paired, 2, axis))
    rotated = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis)
    flat = rotated.reshape(*x.shape[:-1], width)
    return jnp.concatenate([flat, wide[..., width:]], axis=-1).astype(x.dtype)


class ALiBi(nn.Module):
    """bias = -slope_n |t - s| for head n, query t, key s; no parameters.

    Source: Press et al. 2022, section 3. BLOOM's code adds slope_n s instead: for a causal query
    that is the same up to a constant per query, which softmax does not see.
    """

    num_heads: int

    def __call__(
        self, positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"]
    ) -> Float[Array, "#B N T S"]:
        distance = jnp.abs(positions[:, :, None] - key_positions[:, None, :])
        slopes = jnp.asarray(alibi_slopes(self.num_heads))
        return -slopes[:, None, None] * distance[:, None]


class RelativeBias(nn.Module):
    """bias = E[bucket(s - t), n] for head n, query t, key s.

    Bidirectional: half of the buckets for keys up to the query, half for those after it. Else all
    are for keys up to the query, and later keys share the bucket of distance 0.

    Source: Raffel et al. 2020, section 2.1. One table per stack, used by all of its layers.
    """

    slot: spec.RelativeBias
    num_heads: int
    bidirectional: bool

    def setup(self):
        shape = (self.slot.num_buckets, self.num_heads)
        self.embedding = self.param("embedding", nn.initializers.normal(1.0), shape, jnp.float32)

    def __call__(
        self, positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"]
    ) -> Float[Array, "#B N T S"]:
        ahead = key_positions[:, None, :] - positions[:, :, None]
        return jnp.moveaxis(self.embedding[self.buckets(ahead)], -1, 1)

    def buckets(self, ahead: Int[Array, "*S"]) -> Int[Array, "*S"]:
        """The bucket of a key that stands `ahead` of its query."""
        count = self.slot.num_buckets // (2 if self.bidirectional else 1)
        table = jnp.asarray(distance_buckets(count, self.slot.max_distance))
        distance = jnp.abs(ahead) if self.bidirectional else jnp.maximum(-ahead, 0)
        side = count * (ahead > 0) if self.bidirectional else 0
        return table[jnp.minimum(distance, self.slot.max_distance)] + side


def make_positions(config: spec.ModelConfig) -> nn.Module | None:
    """The layer of vectors added to the embeddings, where the position slot asks for one."""
    match config.position:
        case spec.Sinusoidal():
            return Sinusoidal(config.max_seq_len, config.d_model)
        case spec.Learned():
            return nn.Embed(config.max_seq_len, config.d_model)
        case _:
            return None


def make_rotary(config: spec.ModelConfig) -> RotaryTable | None:
    """The layer that rotates queries and keys, where the position slot asks for one."""
    match config.position:
        case spec.Rotary(theta=theta, scaling=scaling):
            pairs = frequencies(config.rotary_size, theta, scaling)
            return RotaryTable(tuple(pairs.tolist()), config.max_seq_len, amplitude(scaling))
        case spec.TwoChannelRotary(theta=theta):
            pairs = frequencies(config.head_size // 2, theta, spec.NoScaling())
            # An answer without a prefix counts from 1 to max_seq_len.
            return RotaryTable(tuple(pairs.tolist()), config.max_seq_len + 1, 1.0)
        case _:
            return None


def make_score_bias(config: spec.ModelConfig, bidirectional: bool) -> nn.Module | None:
    """The layer of biases on scores, where the position slot asks for one."""
    match config.position:
        case spec.ALiBi():
            return ALiBi(config.num_heads)
        case spec.RelativeBias() as slot:
            return RelativeBias(slot, config.num_heads, bidirectional)
        case _:
            return None
