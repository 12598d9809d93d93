"""Batch normalization with trained statistics; torch's model has an epsilon of 1e-3, Flax 1e-5.

Momentum 0.01 of torch is 0.99 of Flax. https://github.com/scverse/scvi-tools/pull/2309
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self, eps):
        super().__init__()
        self.dense, self.bn = tnn.Linear(5, 4), tnn.BatchNorm1d(4, momentum=0.01, eps=eps)

    def forward(self, x):
        return self.bn(self.dense(x))  # fault


class FlaxNet(nn.Module):
    train: bool = False

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(4, name="dense")(x)
        return nn.BatchNorm(use_running_average=not self.train, name="bn")(x)  # fault


def trained(eps):
    torch.manual_seed(0)
    net = Net(eps)
    for _ in range(50):
        net(torch.randn(32, 5) + 1)
    return net


def build_torch():
    return trained(1e-5).eval()


def build_faulty_torch():
    return trained(1e-3).eval()


def build_torch_in_training():
    return trained(1e-5).train()


def build_jax():
    return FlaxNet()


def build_jax_in_training():
    return FlaxNet(train=True)


def build_jax_with_statistics():
    """What a user who copied torch's statistics hands over."""
    norm = trained(1e-5).bn
    params = FlaxNet().init(jax.random.key(0), jnp.zeros((6, 5)))["params"]
    stats = {"mean": norm.running_mean.numpy(), "var": norm.running_var.numpy()}
    return FlaxNet(), {"params": params, "batch_stats": {"bn": stats}}
