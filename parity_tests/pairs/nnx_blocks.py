"""A residual network in NNX: as a module, as its split parts, and with one thing changed."""

import jax
import torch
from flax import nnx
from torch import nn as tnn
from torch.nn import functional as F


class TorchBlock(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = tnn.LayerNorm(12), tnn.Linear(12, 24), tnn.Linear(24, 12)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class TorchNet(tnn.Module):
    def __init__(self):
        super().__init__()
        self.layers = tnn.ModuleList([TorchBlock(), TorchBlock()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Block(nnx.Module):
    def __init__(self, rngs, epsilon, approximate):
        self.norm = nnx.LayerNorm(12, epsilon=epsilon, rngs=rngs)
        self.up, self.down = nnx.Linear(12, 24, rngs=rngs), nnx.Linear(24, 12, rngs=rngs)
        self.approximate = approximate

    def __call__(self, x):
        h = self.norm(x)  # fault epsilon
        h = jax.nn.gelu(self.up(h), approximate=self.approximate)  # fault gelu
        return x + self.down(h)


class Net(nnx.Module):
    def __init__(self, epsilon=1e-5, approximate=False, *, rngs):
        self.layers = nnx.List([Block(rngs, epsilon, approximate) for _ in range(2)])

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def build_torch():
    torch.manual_seed(0)
    net = TorchNet().eval()
    for layer in net.layers:
        tnn.init.normal_(layer.norm.weight, 1.0, 0.5)
    return net


def build_jax():
    return Net(rngs=nnx.Rngs(0))


def build_split():
    return nnx.split(build_jax())


def build_bridged():
    return nnx.bridge.ToLinen(Net)


def build_epsilon():
    return Net(epsilon=1e-3, rngs=nnx.Rngs(0))


def build_gelu():
    return Net(approximate=True, rngs=nnx.Rngs(0))
