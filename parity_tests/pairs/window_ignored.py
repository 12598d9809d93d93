"""A local window of three tokens is ignored where no mask is given beside it.

https://github.com/jax-ml/jax/issues/32300
"""

import flax.linen as nn
import jax
import torch
from torch import nn as tnn
from torch.nn import functional as F

WIDTH, HEADS, BACK = 12, 3, 2


class Attention(tnn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, tnn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (
            projection(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        steps = torch.arange(x.shape[1])
        gap = steps[:, None] - steps
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=(gap >= 0) & (gap <= BACK))
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FlaxAttention(nn.Module):
    window: object = None
    causal: bool = False

    @nn.compact
    def __call__(self, x):
        q, k, v = (
            nn.Dense(WIDTH, name=f"{n}_proj")(x).reshape(*x.shape[:-1], HEADS, -1) for n in "qkv"
        )
        y = jax.nn.dot_product_attention(  # fault
            q, k, v, local_window_size=self.window, is_causal=self.causal
        )
        return nn.Dense(WIDTH, name="o_proj")(y.reshape(x.shape))


class LinenAttention(nn.Module):
    causal: bool

    @nn.compact
    def __call__(self, x):
        q, k, v = (
            nn.Dense(WIDTH, name=f"{n}_proj")(x).reshape(*x.shape[:-1], HEADS, -1) for n in "qkv"
        )
        mask = nn.make_causal_mask(x[..., 0]) if self.causal else None
        y = nn.dot_product_attention(q, k, v, mask=mask)  # fault
        return nn.Dense(WIDTH, name="o_proj")(y.reshape(x.shape))


def build_torch():
    torch.manual_seed(0)
    return Attention().eval()


def build_jax():
    return FlaxAttention(window=(BACK, 0))


def build_faulty():
    return FlaxAttention()


def build_causal():
    return FlaxAttention(causal=True)


def build_linen():
    return LinenAttention(causal=False)


def build_linen_causal():
    return LinenAttention(causal=True)
