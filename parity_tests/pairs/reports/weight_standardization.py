"""Standardized kernels: epsilon is added to the variance in torch, to the deviation in JAX.

https://github.com/google-research/vision_transformer/issues/76,
https://github.com/jeonsworld/ViT-pytorch/issues/21
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn import functional as F


class StdConv2d(tnn.Conv2d):
    def forward(self, x):
        var, mean = torch.var_mean(self.weight, (1, 2, 3), keepdim=True, unbiased=False)
        weight = (self.weight - mean) / torch.sqrt(var + 1e-5)
        return F.conv2d(x, weight, self.bias, padding=self.padding)


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = StdConv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def by_variance(w):
    return (w - w.mean((0, 1, 2))) * jax.lax.rsqrt(w.var((0, 1, 2)) + 1e-5)


def by_deviation(w):
    w = w - jnp.mean(w, axis=(0, 1, 2))
    return w / (jnp.std(w, axis=(0, 1, 2)) + 1e-5)  # fault


class StdConv(nn.Conv):
    standardize: object = None

    def param(self, name, *args, **kwargs):
        value = super().param(name, *args, **kwargs)
        return self.standardize(value) if name == "kernel" else value


class FlaxNet(nn.Module):
    standardize: object

    @nn.compact
    def __call__(self, x):
        conv = StdConv(4, (3, 3), padding=1, standardize=self.standardize, name="conv")
        return conv(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet(by_variance)


def build_faulty():
    return FlaxNet(by_deviation)
