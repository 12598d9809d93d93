"""Weights of CLIP trained with x * sigmoid(1.702 x) run with the exact GELU.

https://github.com/mlfoundations/open_clip/issues/771
"""

import equinox as eqx
import jax
import torch
from torch import nn as tnn


class Mlp(tnn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = tnn.Linear(6, 24), tnn.Linear(24, 6)

    def forward(self, x):
        h = self.c_fc(x)
        return self.c_proj(h * torch.sigmoid(1.702 * h))


def quick_gelu(x):
    return x * jax.nn.sigmoid(1.702 * x)


def gelu(x):
    return jax.nn.gelu(x, approximate=False)  # fault


class EqxMlp(eqx.Module):
    c_fc: eqx.nn.Linear
    c_proj: eqx.nn.Linear
    act: callable

    def __init__(self, act):
        first, second = jax.random.split(jax.random.key(0))
        self.c_fc = eqx.nn.Linear(6, 24, key=first)
        self.c_proj = eqx.nn.Linear(24, 6, key=second)
        self.act = act

    def __call__(self, x):
        return jax.vmap(lambda row: self.c_proj(self.act(self.c_fc(row))))(x)


def build_torch():
    torch.manual_seed(0)
    return Mlp().eval()


def build_jax():
    return EqxMlp(quick_gelu)


def build_faulty():
    return EqxMlp(gelu)
