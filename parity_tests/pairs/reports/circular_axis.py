"""A panorama is padded around its width; the other order of axes pads around its height.

https://github.com/pytorch/pytorch/issues/37844
"""

import flax.linen as nn
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv2d(3, 4, 3, padding=(0, 1), padding_mode="circular")

    def forward(self, x):
        return torch.relu(self.conv(x)).mean((2, 3))


class FlaxNet(nn.Module):
    padding: tuple

    @nn.compact
    def __call__(self, x):
        x = jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0), *self.padding, (0, 0)), "wrap")  # fault
        x = nn.Conv(4, (3, 3), padding="VALID", name="conv")(x)  # fault
        return nn.relu(x).mean((1, 2))


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet(((0, 0), (1, 1)))


def build_faulty():
    return FlaxNet(((1, 1), (0, 0)))
