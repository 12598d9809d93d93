"""Convolutions of one and two dimensions; a 3x3 kernel of 3 to 3 channels fits in any order."""

import flax.linen as nn
import torch
from torch import nn as tnn


class Conv(tnn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return self.conv(x)


class Conv1d(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Conv(4, (3,), padding=1, name="conv")(x.swapaxes(1, 2)).swapaxes(1, 2)


class Conv2d(nn.Module):
    channels_last: bool = False

    @nn.compact
    def __call__(self, x):
        conv = nn.Conv(3, (3, 3), padding=1, name="conv")
        if self.channels_last:
            return conv(x)
        return conv(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def build_torch_1d():
    torch.manual_seed(0)
    return Conv(tnn.Conv1d(4, 4, 3, padding=1)).eval()


def build_torch_2d():
    torch.manual_seed(0)
    return Conv(tnn.Conv2d(3, 3, 3, padding=1)).eval()


def build_jax_1d():
    return Conv1d()


def build_jax_2d():
    return Conv2d()


def build_jax_channels_last():
    """For an image handed over as each side wants it."""
    return Conv2d(channels_last=True)


def images():
    """The same images, channels first for torch and last for JAX."""
    import numpy as np

    batch = np.random.default_rng(0).normal(size=(2, 3, 6, 5))
    return [batch], [batch.transpose(0, 2, 3, 1)]
