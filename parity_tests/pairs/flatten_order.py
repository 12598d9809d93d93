"""A dense layer behind flattened features: [H, W, C] beside [C, H, W], both of one size.

https://github.com/google/flax/pull/1848
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = tnn.LayerNorm(3), tnn.Linear(48, 5)

    def forward(self, x):
        x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.out(x.flatten(1))


class FlaxNet(nn.Module):
    channels_first: bool

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(1e-5, use_fast_variance=False, name="norm")(x.transpose(0, 2, 3, 1))
        if self.channels_first:
            x = x.transpose(0, 3, 1, 2)
        x = x.reshape(len(x), -1)  # fault
        return nn.Dense(5, name="out")(x)  # fault


def build_torch():
    torch.manual_seed(0)
    net = Net().eval()
    tnn.init.normal_(net.norm.weight)
    return net


def build_jax():
    return FlaxNet(channels_first=True)


def build_faulty():
    return FlaxNet(channels_first=False)
