"""An upsampling head: torch aligns the corners, `jax.image.resize` the edges of the pixels.

https://github.com/google/flax/issues/2210
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Head(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv2d(3, 4, 3, padding=1)
        self.up = tnn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)

    def forward(self, x):
        return self.up(self.conv(x))


def aligned(x, shape):
    scale = (jnp.array(shape[1:3]) - 1.0) / (jnp.array(x.shape[1:3]) - 1.0)
    return jax.image.scale_and_translate(
        x, shape, (1, 2), scale, 0.5 - scale / 2, "bilinear", antialias=False
    )


def resized(x, shape):
    return jax.image.resize(x, shape, "bilinear")  # fault


class FlaxHead(nn.Module):
    resize: object

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3), padding=1, name="conv")(x.transpose(0, 2, 3, 1))
        b, h, w, c = x.shape
        return self.resize(x, (b, 2 * h, 2 * w, c)).transpose(0, 3, 1, 2)


def build_torch():
    torch.manual_seed(0)
    return Head().eval()


def build_jax():
    return FlaxHead(aligned)


def build_faulty():
    return FlaxHead(resized)
