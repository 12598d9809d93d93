"""A softplus with a sharpness of 5: jax's function has no such argument.

https://github.com/jax-ml/jax/issues/18443
"""

import haiku as hk
import jax
import torch
from torch import nn as tnn


class Density(tnn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = tnn.Linear(3, 8), tnn.Linear(8, 1)
        self.act = tnn.Softplus(beta=5)

    def forward(self, x):
        return self.out(self.act(self.hidden(x)))


def sharp_softplus(x):
    return jax.nn.softplus(5 * x) / 5


def softplus(x):
    return jax.nn.softplus(x)  # fault


def transformed(act):
    def density(x):
        return hk.Linear(1, name="out")(act(hk.Linear(8, name="hidden")(x)))

    return hk.without_apply_rng(hk.transform(density))


def build_torch():
    torch.manual_seed(0)
    return Density().eval()


def build_jax():
    return transformed(sharp_softplus)


def build_faulty():
    return transformed(softplus)
