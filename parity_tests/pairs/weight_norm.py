"""Weight normalization: torch's g, its `original0`, is Linen's `kernel/scale`.

https://github.com/google/flax/issues/4138
"""

import flax.linen as nn
import torch
from torch import nn as tnn
from torch.nn.utils.parametrizations import weight_norm


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.dense = weight_norm(tnn.Linear(5, 4))

    def forward(self, x):
        return self.dense(x)


class FlaxNet(nn.Module):
    def setup(self):
        self.dense = nn.Dense(4)
        self.norm = nn.WeightNorm(self.dense, variable_filter={"kernel"})

    def __call__(self, x):
        return self.norm(x)


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet()
