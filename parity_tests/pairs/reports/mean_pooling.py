"""The embedding of a sentence is the mean of its tokens; the port's counts its padding too.

https://github.com/lanterndata/lantern_extras/pull/91
"""

import haiku as hk
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn as tnn


class Encoder(tnn.Module):
    def __init__(self):
        super().__init__()
        self.proj = tnn.Linear(5, 6)

    def forward(self, x, mask):
        x, mask = torch.tanh(self.proj(x)), mask[..., None]
        return (x * mask).sum(1) / mask.sum(1)


def masked_mean(x, mask):
    mask = mask[..., None]
    return (x * mask).sum(1) / mask.sum(1)


def plain_mean(x, mask):
    return x.mean(1)  # fault


def transformed(pool):
    def encode(x, mask):
        return pool(jnp.tanh(hk.Linear(6, name="proj")(x)), mask)

    return hk.without_apply_rng(hk.transform(encode))


def inputs():
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    return {"x": np.random.default_rng(0).normal(size=(2, 6, 5)), "mask": mask}


def build_torch():
    torch.manual_seed(0)
    return Encoder().eval()


def build_jax():
    return transformed(masked_mean)


def build_faulty():
    return transformed(plain_mean)
