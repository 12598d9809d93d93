"""The gate of a mobile network: torch's hard sigmoid has a slope of 1/6, that of Keras of 0.2.

https://github.com/tenstorrent/tt-metal/pull/1412
"""

import haiku as hk
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn import functional as F


class Gate(tnn.Module):
    def __init__(self):
        super().__init__()
        self.fc = tnn.Linear(6, 6)

    def forward(self, x):
        return x * F.hardsigmoid(self.fc(x))


def hard_sigmoid_of_keras(x):
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)  # fault


def transformed(sigmoid):
    def gate(x):
        return x * sigmoid(hk.Linear(6, name="fc")(x))

    return hk.without_apply_rng(hk.transform(gate))


def build_torch():
    torch.manual_seed(0)
    return Gate().eval()


def build_jax():
    return transformed(jax.nn.hard_sigmoid)


def build_faulty():
    return transformed(hard_sigmoid_of_keras)
