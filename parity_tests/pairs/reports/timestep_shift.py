"""Frequencies of diffusion steps end before 1 / 10000 in torch, at it in the port.

https://github.com/kohya-ss/sd-scripts/pull/1187
"""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn as tnn
from torch.nn import functional as F


class Steps(tnn.Module):
    def __init__(self):
        super().__init__()
        self.proj = tnn.Linear(8, 5)

    def forward(self, t):
        frequencies = torch.exp(-torch.log(torch.tensor(1e4, dtype=t.dtype)) * torch.arange(4) / 4)
        angles = t[:, None] * frequencies
        return F.silu(self.proj(torch.cat([angles.sin(), angles.cos()], -1)))


class NnxSteps(nnx.Module):
    def __init__(self, freq_shift, rngs):
        self.proj = nnx.Linear(8, 5, rngs=rngs)
        self.freq_shift = freq_shift

    def __call__(self, t):
        exponent = -jnp.log(1e4) * jnp.arange(4, dtype=t.dtype)
        exponent = exponent / (4 - self.freq_shift)  # fault
        angles = t[:, None] * jnp.exp(exponent)  # fault
        return jax.nn.silu(self.proj(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)))


def build_torch():
    torch.manual_seed(0)
    return Steps().eval()


def build_jax():
    return NnxSteps(0, nnx.Rngs(0))


def build_faulty():
    return NnxSteps(1, nnx.Rngs(0))
