"""Position embeddings stretched to a longer grid: torch's cubic kernel has a = -0.75, not -0.5.

https://github.com/jax-ml/jax/issues/15768, https://github.com/Blaizzy/mlx-vlm/issues/1241
"""

import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn as tnn
from torch.nn import functional as F

GRID, LONGER, WIDTH = 5, 7, 6


class Positions(tnn.Module):
    def __init__(self):
        super().__init__()
        self.table = tnn.Parameter(torch.randn(1, WIDTH, GRID, 1))

    def forward(self, x):
        table = F.interpolate(self.table, size=(LONGER, 1), mode="bicubic")
        return x + table[0, :, :, 0].T


def cubic(t, a):
    t = jnp.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = a * (((t - 5) * t + 8) * t - 4)
    return jnp.where(t < 1, near, jnp.where(t < 2, far, 0.0))


class NnxPositions(nnx.Module):
    def __init__(self, a, rngs):
        self.table = nnx.Param(rngs.normal((1, WIDTH, GRID, 1)))
        self.a = a

    def __call__(self, x):
        centres = (jnp.arange(LONGER) + 0.5) * GRID / LONGER - 0.5
        first = jnp.floor(centres).astype(int) - 1
        out = 0.0
        for k in range(4):
            taps = self.table[0, :, jnp.clip(first + k, 0, GRID - 1), 0]
            out += taps * cubic(centres - first - k, self.a)[:, None]  # fault
        return x + out


def build_torch():
    torch.manual_seed(0)
    return Positions().eval()


def build_jax():
    return NnxPositions(-0.75, nnx.Rngs(0))


def build_faulty():
    return NnxPositions(-0.5, nnx.Rngs(0))
