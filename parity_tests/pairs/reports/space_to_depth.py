"""Pixels folded into channels: torch keeps the pixels of one channel together, others do not.

https://github.com/tensorflow/tensorflow/issues/53291
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Fold(tnn.Module):
    def __init__(self):
        super().__init__()
        self.fold, self.conv = tnn.PixelUnshuffle(2), tnn.Conv2d(12, 5, 1)

    def forward(self, x):
        return self.conv(self.fold(x))


class FlaxFold(nn.Module):
    channels_outside: bool

    @nn.compact
    def __call__(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // 2, 2, w // 2, 2)
        if self.channels_outside:
            x = x.transpose(0, 2, 4, 1, 3, 5)
        else:
            x = x.transpose(0, 2, 4, 3, 5, 1)  # fault
        x = x.reshape(b, h // 2, w // 2, 4 * c)  # fault
        return nn.Conv(5, (1, 1), name="conv")(x).transpose(0, 3, 1, 2)  # fault


def build_torch():
    torch.manual_seed(0)
    return Fold().eval()


def build_jax():
    return FlaxFold(channels_outside=True)


def build_faulty():
    return FlaxFold(channels_outside=False)
