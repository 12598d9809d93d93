"""Embeddings of diffusion steps: cosines come first in the torch model, sines in the port.

https://github.com/huggingface/diffusers/pull/1369
"""

import flax.linen as nn
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Steps(tnn.Module):
    def __init__(self):
        super().__init__()
        self.proj = tnn.Linear(8, 5)

    def forward(self, t):
        angles = t[:, None] * 10000 ** (-torch.arange(4, dtype=t.dtype) / 4)
        return self.proj(torch.cat([angles.cos(), angles.sin()], -1))


class FlaxSteps(nn.Module):
    flip_sin_to_cos: bool

    @nn.compact
    def __call__(self, t):
        angles = t[:, None] * 10000 ** (-jnp.arange(4, dtype=t.dtype) / 4)
        if self.flip_sin_to_cos:
            waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1)
        else:
            waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)  # fault
        return nn.Dense(5, name="proj")(waves)  # fault


def build_torch():
    torch.manual_seed(0)
    return Steps().eval()


def build_jax():
    return FlaxSteps(flip_sin_to_cos=True)


def build_faulty():
    return FlaxSteps(flip_sin_to_cos=False)
