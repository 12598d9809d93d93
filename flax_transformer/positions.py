"""Position encodings that are added to the token embeddings."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer_spec import config as spec


def sinusoidal_table(max_seq_len: int, d_model: int) -> np.ndarray:
    """P[t, 2i] = sin(t / 10000**(2i / D)), P[t, 2i + 1] = cos(t / 10000**(2i / D)), in float64.

    Taken in double precision and rounded at use: a float32 angle near 5,000 is off by 2e-4.

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


def make_positions(config: spec.ModelConfig) -> nn.Module | None:
    """The module that fills the config's position slot: positions -> vectors to add."""
    match config.position:
        case spec.Sinusoidal():
            return Sinusoidal(config.max_seq_len, config.d_model)
        case spec.Learned():
            return nn.Embed(config.max_seq_len, config.d_model)
        case spec.NoPosition():
            return None
