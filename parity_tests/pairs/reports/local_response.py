"""Local response normalization: torch divides alpha by the number of channels in a window.

https://github.com/MarcBS/keras/pull/4, https://github.com/BVLC/caffe/issues/1453
"""

import flax.linen as nn
import jax
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv2d(3, 7, 1)
        self.norm = tnn.LocalResponseNorm(5, alpha=0.3, beta=0.75, k=2.0)

    def forward(self, x):
        return self.norm(self.conv(x))


class FlaxNet(nn.Module):
    alpha: float

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(7, (1, 1), name="conv")(x.transpose(0, 2, 3, 1))
        window, padding = (1, 1, 1, 5), ((0, 0), (0, 0), (0, 0), (2, 2))
        x2 = x * x
        total = jax.lax.reduce_window(x2, 0.0, jax.lax.add, window, (1,) * 4, padding)  # fault
        x = x / (2.0 + self.alpha * total) ** 0.75  # fault
        return x.transpose(0, 3, 1, 2)


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet(0.3 / 5)


def build_faulty():
    return FlaxNet(0.3)
