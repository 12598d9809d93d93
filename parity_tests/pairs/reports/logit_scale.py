"""The temperature of a contrastive model is kept as a logarithm; the port does not undo it.

https://github.com/BAAI-DCAI/M3D/issues/64
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn as tnn


class Clip(tnn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = tnn.Linear(5, 4, bias=False), tnn.Linear(6, 4, bias=False)
        self.logit_scale = tnn.Parameter(torch.tensor(np.log(1 / 0.07)))

    def forward(self, image, text):
        a, b = self.image(image), self.text(text)
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        return self.logit_scale.exp() * a @ b.T


class FlaxClip(nn.Module):
    is_log: bool

    @nn.compact
    def __call__(self, image, text):
        a = nn.Dense(4, use_bias=False, name="image")(image)
        b = nn.Dense(4, use_bias=False, name="text")(text)
        a, b = (t / jnp.linalg.norm(t, axis=-1, keepdims=True) for t in (a, b))
        scale = self.param("logit_scale", nn.initializers.constant(2.6), ())
        if self.is_log:
            scale = jnp.exp(scale)
        return scale * (a @ b.T)  # fault


def build_torch():
    torch.manual_seed(0)
    return Clip().eval()


def build_jax():
    return FlaxClip(is_log=True)


def build_faulty():
    return FlaxClip(is_log=False)
