"""RMS normalization without weights: torch's epsilon is that of the dtype, the port's is 1e-5.

https://github.com/goodfire-ai/spd/issues/625
"""

import haiku as hk
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn import functional as F


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = tnn.Linear(6, 8), tnn.Linear(8, 3)

    def forward(self, x):
        return self.down(F.rms_norm(self.up(x), (8,)))


def rms_norm(x):
    eps = jnp.finfo(x.dtype).eps
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps)


def rms_norm_1e5(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)  # fault


def transformed(norm):
    def net(x):
        x = norm(hk.Linear(8, name="up")(x))
        return hk.Linear(3, name="down")(x)

    return hk.without_apply_rng(hk.transform(net))


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return transformed(rms_norm)


def build_faulty():
    return transformed(rms_norm_1e5)
