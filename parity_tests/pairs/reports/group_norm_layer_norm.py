"""A group normalization of one group spans the whole image, a layer normalization one pixel.

https://github.com/apple/ml-cvnets/issues/34
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Block(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = tnn.GroupNorm(1, 6), tnn.Conv2d(6, 6, 1)

    def forward(self, x):
        return x + self.conv(self.norm(x))


class FlaxBlock(nn.Module):
    norm: type

    @nn.compact
    def __call__(self, x):
        x = x.transpose(0, 2, 3, 1)
        if self.norm is nn.GroupNorm:
            h = nn.GroupNorm(1, epsilon=1e-5, use_fast_variance=False, name="norm")(x)
        else:
            h = nn.LayerNorm(1e-5, use_fast_variance=False, name="norm")(x)  # fault
        return (x + nn.Conv(6, (1, 1), name="conv")(h)).transpose(0, 3, 1, 2)


def build_torch():
    torch.manual_seed(0)
    block = Block().eval()
    tnn.init.normal_(block.norm.weight)
    return block


def build_jax():
    return FlaxBlock(nn.GroupNorm)


def build_faulty():
    return FlaxBlock(nn.LayerNorm)
