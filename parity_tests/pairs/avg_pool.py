"""A pooling mixer: Linen counts the padding in the average, the torch model does not.

https://github.com/google/flax/issues/2448
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Mixer(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm = tnn.LayerNorm(4)
        self.pool = tnn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.pool(y.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) - y


class FlaxMixer(nn.Module):
    count_include_pad: bool

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(1e-5, use_fast_variance=False, name="norm")(x)
        pooled = nn.avg_pool(  # fault
            y, (3, 3), (1, 1), "SAME", count_include_pad=self.count_include_pad
        )
        return x + pooled - y


def build_torch():
    torch.manual_seed(0)
    net = Mixer().eval()
    tnn.init.normal_(net.norm.weight)
    return net


def build_jax():
    return FlaxMixer(count_include_pad=False)


def build_faulty():
    return FlaxMixer(count_include_pad=True)
