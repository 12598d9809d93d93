"""Attention as both libraries ship it, and as users write it: every pair is the same function."""

import flax.linen as nn
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn import functional as F

WIDTH, HEADS = 16, 4


class TorchLayer(tnn.Module):
    def __init__(self):
        super().__init__()
        self.attn = tnn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


class Split(tnn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names
        for name in (*names, "out"):
            self.add_module(name, tnn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (
            self.get_submodule(name)(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for name in self.names
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Fused(tnn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = tnn.Linear(WIDTH, 3 * WIDTH), tnn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (a.unflatten(-1, (HEADS, -1)).transpose(1, 2) for a in self.qkv(x).chunk(3, -1))
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class LinenLayer(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.MultiHeadDotProductAttention(HEADS, name="attn")(x, x)


class LinenSplit(nn.Module):
    names: tuple

    @nn.compact
    def __call__(self, x):
        q, k, v = (
            nn.Dense(WIDTH, name=name)(x).reshape(*x.shape[:2], HEADS, -1) for name in self.names
        )
        return nn.Dense(WIDTH, name="out")(nn.dot_product_attention(q, k, v).reshape(x.shape))


class LinenFused(nn.Module):
    @nn.compact
    def __call__(self, x):
        q, k, v = (
            part.reshape(*x.shape[:2], HEADS, -1)
            for part in jnp.split(nn.Dense(3 * WIDTH, name="qkv")(x), 3, -1)
        )
        return nn.Dense(WIDTH, name="proj")(nn.dot_product_attention(q, k, v).reshape(x.shape))


def seeded(cls, *args):
    torch.manual_seed(0)
    return cls(*args).eval()


def build_torch():
    return seeded(TorchLayer)


def build_torch_split():
    return seeded(Split, ("query", "key", "value"))


def build_torch_fused():
    return seeded(Fused)


def build_jax():
    return LinenLayer()


def build_jax_layer_alone():
    return nn.MultiHeadDotProductAttention(HEADS)


def build_jax_split():
    return LinenSplit(("query", "key", "value"))


def build_jax_renamed():
    return LinenSplit(("q_proj", "k_proj", "v_proj"))


def build_jax_fused():
    return LinenFused()
