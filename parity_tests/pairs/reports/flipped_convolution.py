"""A short filter over time: `jnp.convolve` turns the filter round, torch's convolution does not.

https://github.com/pytorch/pytorch/issues/117534
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Filter(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv1d(5, 5, 3, groups=5, bias=False)

    def forward(self, x):
        return torch.sigmoid(self.conv(x))


def correlate(x, taps):
    return jnp.correlate(x, taps, mode="valid")


def convolve(x, taps):
    return jnp.convolve(x, taps, mode="valid")  # fault


class EqxFilter(eqx.Module):
    weight: jax.Array
    apply: callable = eqx.field(static=True)

    def __call__(self, x):
        over_channels = jax.vmap(self.apply)
        return jax.nn.sigmoid(jax.vmap(lambda one: over_channels(one, self.weight[:, 0]))(x))


TAPS = jax.random.normal(jax.random.key(0), (5, 1, 3))


def build_torch():
    torch.manual_seed(0)
    return Filter().eval()


def build_jax():
    return EqxFilter(TAPS, correlate)


def build_faulty():
    return EqxFilter(TAPS, convolve)
