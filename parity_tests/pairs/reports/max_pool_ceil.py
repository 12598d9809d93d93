"""torch pools with `ceil_mode`: a last, smaller window counts. 'VALID' leaves it out.

https://github.com/google/flax/issues/2040
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = tnn.Conv2d(2, 4, 3, padding=1), tnn.Linear(4, 3)
        self.pool = tnn.MaxPool2d(3, stride=2, ceil_mode=True)

    def forward(self, x):
        return self.out(self.pool(self.conv(x)).mean((2, 3)))


class FlaxNet(nn.Module):
    padding: object

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3), padding=1, name="conv")(x.transpose(0, 2, 3, 1))
        x = nn.max_pool(x, (3, 3), (2, 2), self.padding)  # fault
        return nn.Dense(3, name="out")(x.mean((1, 2)))


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet(((0, 1), (0, 1)))


def build_faulty():
    return FlaxNet("VALID")
