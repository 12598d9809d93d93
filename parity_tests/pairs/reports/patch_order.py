"""Patches of an image with channels first: reshaped at once, a patch mixes pixels of others.

https://github.com/gupta-abhay/pytorch-vit/issues/7
"""

import jax
import torch
from torch import nn as tnn


class Patches(tnn.Module):
    def __init__(self):
        super().__init__()
        self.proj = tnn.Linear(12, 5)

    def forward(self, x):
        x = x.unfold(2, 2, 2).unfold(3, 2, 2)
        return self.proj(x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))


def patches(x):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // 2, 2, w // 2, 2)
    return x.transpose(0, 2, 4, 1, 3, 5).reshape(b, -1, 4 * c)


def mixed_patches(x):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // 2, 2, w // 2, 2).swapaxes(3, 4)
    return x.reshape(b, -1, 4 * c)  # fault


def projected(cut):
    def embed(params, x):
        x = cut(x)
        return x @ params["proj"]["weight"] + params["proj"]["bias"]  # fault

    weight = jax.random.normal(jax.random.key(0), (12, 5))
    return embed, {"proj": {"weight": weight, "bias": weight[0]}}


def build_torch():
    torch.manual_seed(0)
    return Patches().eval()


def build_jax():
    return projected(patches)


def build_faulty():
    return projected(mixed_patches)
