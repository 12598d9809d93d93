"""The stem of a ResNet: torch pads the pooled image on both sides, 'SAME' only at its end.

https://github.com/google/flax/issues/963
"""

import jax
import torch
from flax import nnx
from torch import nn as tnn


class Stem(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.pool = tnn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(torch.relu(self.conv(x)))


class NnxStem(nnx.Module):
    def __init__(self, padding, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), padding=1, use_bias=False, rngs=rngs)
        self.padding = padding

    def __call__(self, x):
        x = jax.nn.relu(self.conv(x.transpose(0, 2, 3, 1)))
        x = nnx.max_pool(x, (3, 3), (2, 2), self.padding)  # fault
        return x.transpose(0, 3, 1, 2)


def build_torch():
    torch.manual_seed(0)
    return Stem().eval()


def build_jax():
    return NnxStem(((1, 1), (1, 1)), nnx.Rngs(0))


def build_faulty():
    return NnxStem("SAME", nnx.Rngs(0))
