"""A transposed convolution: Linen's does not flip its kernel, torch's does.

https://github.com/jax-ml/jax/issues/11252, https://github.com/google/flax/issues/3137
"""

import flax.linen as nn
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Up(tnn.Module):
    def __init__(self):
        super().__init__()
        self.up = tnn.ConvTranspose2d(3, 4, 2, stride=2)

    def forward(self, x):
        return self.up(x)


class FlaxUp(nn.Module):
    transpose_kernel: bool

    @nn.compact
    def __call__(self, x):
        up = nn.ConvTranspose(
            4, (2, 2), (2, 2), "VALID", transpose_kernel=self.transpose_kernel, name="up"
        )
        return up(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)  # fault


def build_torch():
    torch.manual_seed(0)
    return Up().eval()


def build_jax():
    return FlaxUp(transpose_kernel=True)


def build_unflipped():
    """The kernel must be flipped when it is copied, which is for the weight map to do."""
    return FlaxUp(transpose_kernel=False)


def build_faulty():
    """A user's own weights, copied without a flip."""
    weights = build_torch().up.state_dict()
    kernel = jnp.asarray(weights["weight"].permute(2, 3, 0, 1).numpy())
    return FlaxUp(False), {"params": {"up": {"kernel": kernel, "bias": weights["bias"].numpy()}}}
