"""The evaluated weights are an average in JAX, the last ones in torch: the loaded weights differ.

https://github.com/Physical-Intelligence/openpi/issues/989
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = tnn.Linear(6, 8), tnn.Linear(8, 3)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


class FlaxNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="out")(nn.relu(nn.Dense(8, name="hidden")(x)))


def walk(steps=20):
    """Weights after some updates, and their average."""
    rng = np.random.default_rng(0)
    weights = {"hidden": rng.normal(size=(6, 8)), "out": rng.normal(size=(8, 3))}
    mean = {name: array.copy() for name, array in weights.items()}
    for _ in range(steps):
        weights = {name: a - 0.05 * rng.normal(size=a.shape) for name, a in weights.items()}
        mean = {name: 0.9 * mean[name] + 0.1 * a for name, a in weights.items()}
    return [{n: a.astype(np.float32) for n, a in held.items()} for held in (weights, mean)]


def as_flax(weights):
    return FlaxNet(), {
        "params": {
            name: {"kernel": jnp.asarray(a), "bias": jnp.zeros(a.shape[1], a.dtype)}
            for name, a in weights.items()
        }
    }


def build_torch():
    net = Net().eval()
    with torch.no_grad():
        for name, array in walk()[0].items():
            layer = net.get_submodule(name)
            layer.weight.copy_(torch.tensor(array.T))
            layer.bias.zero_()
    return net


def build_jax():
    return as_flax(walk()[0])


def build_faulty():
    return as_flax(walk()[1])
