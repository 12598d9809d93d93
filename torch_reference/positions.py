"""Position encodings that are added to the token embeddings."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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
    """Rows of the sinusoidal table; no parameters, nothing in the state dict."""

    table: Tensor

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        table = torch.as_tensor(sinusoidal_table(max_seq_len, d_model))
        self.register_buffer("table", table, persistent=False)

    def _apply(self, fn, recurse=True):
        # A module's casts reach its buffers, and a table once rounded cannot be made exact again:
        # it follows the module to its device and stays in float64.
        exact = self.table
        super()._apply(fn, recurse)
        self.table = exact.to(self.table.device)
        return self

    def forward(self, positions: Int[Tensor, "*B T"]) -> Float[Tensor, "*B T D"]:
        return self.table[positions]


def make_positions(config: spec.ModelConfig) -> nn.Module | None:
    """The module that fills the config's position slot: positions -> vectors to add."""
    match config.position:
        case spec.Sinusoidal():
            return Sinusoidal(config.max_seq_len, config.d_model)
        case spec.Learned():
            return nn.Embedding(config.max_seq_len, config.d_model)
        case spec.NoPosition():
            return None
