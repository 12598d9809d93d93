"""Layer and group normalization with the libraries' default epsilons, 1e-5 and 1e-6."""

import flax.linen as nn
import torch
from torch import nn as tnn


class Norms(tnn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm
        tnn.init.normal_(norm.weight)

    def forward(self, x):
        if isinstance(self.norm, tnn.LayerNorm):
            return self.norm(x)
        return self.norm(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class LayerNorm(nn.Module):
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x):
        return nn.LayerNorm(self.epsilon, name="norm")(x)  # fault layer


class GroupNorm(nn.Module):
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x):
        return nn.GroupNorm(2, epsilon=self.epsilon, name="norm")(x)  # fault group


def build_torch_layer():
    torch.manual_seed(0)
    return Norms(tnn.LayerNorm(8)).eval()


def build_torch_group():
    torch.manual_seed(0)
    return Norms(tnn.GroupNorm(2, 8)).eval()


def build_jax_layer():
    return LayerNorm(1e-5)


def build_jax_group():
    return GroupNorm(1e-5)


def build_layer():
    return LayerNorm()


def build_group():
    return GroupNorm()
