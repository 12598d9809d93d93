"""An update of RMSProp: optax has epsilon inside the root, torch outside it.

https://github.com/google-deepmind/optax/issues/532
"""

import flax.linen as nn
import optax
import torch
from torch import nn as tnn


class Step(tnn.Module):
    def __init__(self):
        super().__init__()
        self.weight = tnn.Parameter(torch.randn(6, 5))

    def forward(self, g, nu):
        nu = 0.99 * nu**2 + 0.01 * g**2
        return self.weight - 6e-4 * g / (nu.sqrt() + 0.01)


class FlaxStep(nn.Module):
    decay: float = 0.99
    eps_in_sqrt: bool = False

    @nn.compact
    def __call__(self, g, nu):
        weight = self.param("weight", nn.initializers.normal(), (6, 5))
        tx = optax.scale_by_rms(self.decay, 0.01, eps_in_sqrt=self.eps_in_sqrt)
        update, _ = tx.update(g, optax.ScaleByRmsState(nu=nu**2))  # fault
        return weight - 6e-4 * update


def build_torch():
    torch.manual_seed(0)
    return Step().eval()


def build_jax():
    return FlaxStep()


def build_eps():
    return FlaxStep(eps_in_sqrt=True)


def build_decay():
    return FlaxStep(decay=0.9)
