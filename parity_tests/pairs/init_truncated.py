"""Fresh weights: `trunc_normal_` cuts at -2 and 2, jax's initializer at two standard deviations.

https://github.com/mlcommons/algorithmic-efficiency/pull/819
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn


class FlaxNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        init = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        return nn.Dense(200, kernel_init=init, name="out")(x)


def build_torch():
    torch.manual_seed(0)
    net = tnn.Sequential()
    net.add_module("out", tnn.Linear(300, 200))
    tnn.init.trunc_normal_(net.out.weight, std=300**-0.5 / 0.87962566103423978)
    tnn.init.zeros_(net.out.bias)
    return net.eval()


def build_faulty():
    net = FlaxNet()
    return net, net.init(jax.random.key(0), jnp.zeros((2, 300)))
