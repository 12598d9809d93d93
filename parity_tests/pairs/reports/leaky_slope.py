"""The negative slope of a leaky ReLU: 0.2 in the model, 0.01 by default.

https://github.com/Dobiasd/frugally-deep/pull/446
"""

import jax
import torch
from flax import nnx
from torch import nn as tnn


class Critic(tnn.Module):
    def __init__(self):
        super().__init__()
        self.net = tnn.Sequential(tnn.Linear(6, 8), tnn.LeakyReLU(0.2), tnn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


class NnxCritic(nnx.Module):
    def __init__(self, slope, rngs):
        self.first, self.last = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)
        self.slope = slope

    def __call__(self, x):
        x = jax.nn.leaky_relu(self.first(x), self.slope)  # fault
        return self.last(x)


def build_torch():
    torch.manual_seed(0)
    return Critic().eval()


def build_jax():
    return NnxCritic(0.2, nnx.Rngs(0))


def build_faulty():
    return NnxCritic(0.01, nnx.Rngs(0))
