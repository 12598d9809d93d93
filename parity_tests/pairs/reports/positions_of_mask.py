"""Prompts padded on the left: torch counts positions from the first token, the port from 0.

https://github.com/huggingface/transformers/pull/30053
"""

import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from torch import nn as tnn


class Embedding(tnn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = tnn.Embedding(20, 6), tnn.Embedding(10, 6)

    def forward(self, ids, mask):
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        return self.wte(ids) + self.wpe(positions)


class NnxEmbedding(nnx.Module):
    def __init__(self, counted, rngs):
        self.wte, self.wpe = nnx.Embed(20, 6, rngs=rngs), nnx.Embed(10, 6, rngs=rngs)
        self.counted = counted

    def __call__(self, ids, mask):
        if self.counted:
            positions = jnp.maximum(mask.cumsum(-1) - 1, 0)
        else:
            positions = jnp.broadcast_to(jnp.arange(ids.shape[-1]), ids.shape)  # fault
        positions = self.wpe(positions)  # fault
        return self.wte(ids) + positions  # fault


def inputs():
    mask = np.array([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
    return {"ids": np.random.default_rng(0).integers(0, 20, (2, 7)), "mask": mask}


def build_torch():
    torch.manual_seed(0)
    return Embedding().eval()


def build_jax():
    return NnxEmbedding(True, nnx.Rngs(0))


def build_faulty():
    return NnxEmbedding(False, nnx.Rngs(0))
