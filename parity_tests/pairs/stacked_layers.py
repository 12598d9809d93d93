"""Three equal layers: a list in torch; scanned, rematerialized, compiled or plain in Linen."""

import flax.linen as nn
import torch
from torch import nn as tnn


class Layer(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = tnn.LayerNorm(8), tnn.Linear(8, 8)

    def forward(self, x):
        return x + self.up(self.norm(x))


class Stack(tnn.Module):
    def __init__(self):
        super().__init__()
        self.layers = tnn.ModuleList([Layer() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class LinenLayer(nn.Module):
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x, _):
        norm = nn.LayerNorm(self.epsilon, use_fast_variance=False, name="norm")
        return x + nn.Dense(8, name="up")(norm(x)), None  # fault


class Scanned(nn.Module):
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            LinenLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3
        )
        return layers(self.epsilon, name="layers")(x, None)[0]


class Listed(nn.Module):
    layer: type = LinenLayer

    @nn.compact
    def __call__(self, x):
        for i in range(3):
            x, _ = self.layer(name=f"layers_{i}")(x, None)
        return x


def build_torch():
    torch.manual_seed(0)
    stack = Stack().eval()
    for layer in stack.layers:
        tnn.init.normal_(layer.norm.weight, 1.0, 0.5)
    return stack


def build_jax():
    return Listed()


def build_scanned():
    return Scanned()


def build_remat():
    return Listed(nn.remat(LinenLayer))


def build_jit():
    return Listed(nn.jit(LinenLayer))


def build_faulty():
    return Scanned(epsilon=1e-3)
