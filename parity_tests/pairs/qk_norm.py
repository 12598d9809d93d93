"""Queries and keys are normalized over all heads at once in torch, head by head in the port.

https://github.com/AI-Hypercomputer/maxtext/pull/3112
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn import functional as F

WIDTH, HEADS = 12, 3


class Attention(tnn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, tnn.Linear(WIDTH, WIDTH, bias=False))
        self.q_norm, self.k_norm = tnn.RMSNorm(WIDTH, eps=1e-6), tnn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x):
        q, k, v = self.q_norm(self.q_proj(x)), self.k_norm(self.k_proj(x)), self.v_proj(x)
        q, k, v = (a.unflatten(-1, (HEADS, -1)).transpose(1, 2) for a in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Norm(nn.Module):
    by_head: bool

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        heads = x.reshape(*x.shape[:-1], HEADS if self.by_head else 1, -1)
        heads *= jax.lax.rsqrt(jnp.square(heads).mean(-1, keepdims=True) + 1e-6)  # fault
        return heads.reshape(x.shape) * scale


class FlaxAttention(nn.Module):
    by_head: bool

    @nn.compact
    def __call__(self, x):
        q, k, v = (nn.Dense(WIDTH, use_bias=False, name=f"{n}_proj")(x) for n in "qkv")
        q, k = Norm(self.by_head, name="q_norm")(q), Norm(self.by_head, name="k_norm")(k)
        q, k, v = (a.reshape(*a.shape[:-1], HEADS, -1) for a in (q, k, v))
        causal = jnp.tri(x.shape[1], dtype=bool)[None, None]
        y = nn.dot_product_attention(q, k, v, mask=causal)
        return nn.Dense(WIDTH, use_bias=False, name="o_proj")(y.reshape(x.shape))


def build_torch():
    torch.manual_seed(0)
    net = Attention().eval()
    for scale in (net.q_norm.weight, net.k_norm.weight):
        tnn.init.normal_(scale, 1.0, 0.5)
    return net


def build_jax():
    return FlaxAttention(by_head=False)


def build_faulty():
    return FlaxAttention(by_head=True)
