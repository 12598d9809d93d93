"""A convolution over a mirrored border: 'reflect' leaves the border's own pixel out.

https://github.com/pytorch/pytorch/issues/189236
"""

import haiku as hk
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv1d(3, 4, 5, padding=2, padding_mode="reflect")

    def forward(self, x):
        return self.conv(x)


def transformed(mode):
    def net(x):
        x = jnp.pad(x, ((0, 0), (0, 0), (2, 2)), mode)  # fault
        x = hk.Conv1D(4, 5, padding="VALID", name="conv")(x.swapaxes(1, 2))  # fault
        return x.swapaxes(1, 2)

    return hk.without_apply_rng(hk.transform(net))


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return transformed("reflect")


def build_faulty():
    return transformed("symmetric")
