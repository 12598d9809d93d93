"""A GRU cell: that of NNX lacks the hidden bias of the new gate, which torch and Linen have.

https://github.com/google/flax/issues/5594
"""

import flax.linen as nn
import torch
from flax import nnx
from torch import nn as tnn


class Cell(tnn.Module):
    def __init__(self):
        super().__init__()
        self.cell = tnn.GRUCell(3, 5)

    def forward(self, x, h):
        return self.cell(x, h)


class LinenCell(nn.Module):
    @nn.compact
    def __call__(self, x, h):
        return nn.GRUCell(5, name="cell")(h, x)[1]


class NnxCell(nnx.Module):
    def __init__(self, *, rngs):
        self.cell = nnx.GRUCell(3, 5, rngs=rngs)

    def __call__(self, x, h):
        return self.cell(h, x)[1]  # fault


def build_torch():
    torch.manual_seed(0)
    return Cell().eval()


def build_jax():
    return LinenCell()


def build_faulty():
    return NnxCell(rngs=nnx.Rngs(0))
