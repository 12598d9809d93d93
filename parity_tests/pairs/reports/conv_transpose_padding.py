"""Padding of a transposed convolution: torch crops its output by it, lax pads its input with it.

https://github.com/jax-ml/jax/issues/17618
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Decoder(tnn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.out = tnn.ConvTranspose2d(3, 4, 4, stride=2, padding=1), tnn.Linear(4, 2)

    def forward(self, x):
        return self.out(torch.relu(self.up(x)).mean((2, 3)))


class FlaxDecoder(nn.Module):
    padding: int

    @nn.compact
    def __call__(self, x):
        padding = ((self.padding, self.padding),) * 2
        up = nn.ConvTranspose(4, (4, 4), (2, 2), padding, transpose_kernel=True, name="up")
        x = up(x.transpose(0, 2, 3, 1))  # fault
        return nn.Dense(2, name="out")(nn.relu(x).mean((1, 2)))


def build_torch():
    torch.manual_seed(0)
    return Decoder().eval()


def build_jax():
    """The kernel's size - 1 - the padding of torch."""
    return FlaxDecoder(2)


def build_faulty():
    return FlaxDecoder(1)
