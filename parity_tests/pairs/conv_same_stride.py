"""A strided convolution: 'SAME' pads (2, 3) at an even size, where torch pads (3, 3).

https://github.com/google/flax/issues/2993
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Stem(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = tnn.Conv2d(3, 5, 7, stride=2, padding=3, bias=False)

    def forward(self, x):
        return self.conv1(x)


class FlaxStem(nn.Module):
    padding: object

    @nn.compact
    def __call__(self, x):
        conv = nn.Conv(5, (7, 7), (2, 2), padding=self.padding, use_bias=False, name="conv1")
        return conv(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)  # fault


def build_torch():
    torch.manual_seed(0)
    return Stem().eval()


def build_jax():
    return FlaxStem(((3, 3), (3, 3)))


def build_faulty():
    return FlaxStem("SAME")
