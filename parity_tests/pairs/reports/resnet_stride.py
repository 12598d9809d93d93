"""A bottleneck: torchvision strides in its 3x3 convolution, the paper in the 1x1 before it.

https://github.com/FluxML/Metalhead.jl/pull/114, https://github.com/google/flax/issues/3275
"""

import jax
import torch
from flax import nnx
from torch import nn as tnn


class Bottleneck(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = tnn.Conv2d(4, 3, 1, bias=False)
        self.conv2 = tnn.Conv2d(3, 3, 3, stride=2, padding=1, bias=False)
        self.conv3 = tnn.Conv2d(3, 8, 1, bias=False)

    def forward(self, x):
        return self.conv3(torch.relu(self.conv2(torch.relu(self.conv1(x)))))


class NnxBottleneck(nnx.Module):
    def __init__(self, strides, rngs):
        first, second = strides
        options = {"use_bias": False, "rngs": rngs}
        self.conv1 = nnx.Conv(4, 3, (1, 1), first, **options)
        self.conv2 = nnx.Conv(3, 3, (3, 3), second, padding=1, **options)
        self.conv3 = nnx.Conv(3, 8, (1, 1), **options)

    def __call__(self, x):
        x = self.conv1(x.transpose(0, 2, 3, 1))  # fault
        x = self.conv2(jax.nn.relu(x))  # fault
        return self.conv3(jax.nn.relu(x)).transpose(0, 3, 1, 2)


def build_torch():
    torch.manual_seed(0)
    return Bottleneck().eval()


def build_jax():
    return NnxBottleneck((1, 2), nnx.Rngs(0))


def build_faulty():
    return NnxBottleneck((2, 1), nnx.Rngs(0))
