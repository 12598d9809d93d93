"""One group normalization of a diffusion model has an epsilon of 1e-6; the default is 1e-5.

https://github.com/ml-explore/mlx-examples/issues/1434
"""

import equinox as eqx
import jax
import torch
from torch import nn as tnn


class Block(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.proj = tnn.GroupNorm(2, 6, eps=1e-6), tnn.Conv2d(6, 6, 1)

    def forward(self, x):
        return x + self.proj(self.norm(x))


class EqxBlock(eqx.Module):
    norm: eqx.nn.GroupNorm
    proj: eqx.nn.Conv2d

    def __init__(self, **options):
        self.norm = eqx.nn.GroupNorm(2, 6, **options)
        self.proj = eqx.nn.Conv2d(6, 6, 1, key=jax.random.key(0))

    def __call__(self, x):
        def one(image):
            h = self.norm(image)  # fault
            return image + self.proj(h)

        return jax.vmap(one)(x)


def build_torch():
    torch.manual_seed(0)
    block = Block().eval()
    tnn.init.normal_(block.norm.weight)
    return block


def build_jax():
    return EqxBlock(eps=1e-6)


def build_faulty():
    return EqxBlock()
