"""A causal and a padding mask are added, so what both hide lies twice as low; joined, once.

https://github.com/huggingface/transformers/issues/18797
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn as tnn

LOW = -1e4


class Attention(tnn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = tnn.Linear(6, 18)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        causal = LOW * torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).triu(1)
        padding = LOW * (1 - mask[:, None].to(x.dtype))
        scores = q @ k.transpose(1, 2) / 6**0.5 + causal + padding
        return scores.softmax(-1) @ v


class FlaxAttention(nn.Module):
    added: bool

    @nn.compact
    def __call__(self, x, mask):
        q, k, v = jnp.split(nn.Dense(18, name="qkv")(x), 3, -1)
        causal, padding = ~np.tri(x.shape[1], dtype=bool), mask[:, None] == 0
        bias = LOW * causal + LOW * padding
        if not self.added:
            bias = LOW * (causal | padding)  # fault
        scores = q @ k.swapaxes(1, 2) / 6**0.5 + bias  # fault
        return jax.nn.softmax(scores) @ v  # fault


def inputs():
    mask = np.array([[0, 0, 0, 0], [1, 1, 1, 0]])
    return {"x": np.random.default_rng(0).normal(size=(2, 4, 6)), "mask": mask}


def build_torch():
    torch.manual_seed(0)
    return Attention().eval()


def build_jax():
    return FlaxAttention(added=True)


def build_faulty():
    return FlaxAttention(added=False)
