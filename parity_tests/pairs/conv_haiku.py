"""A Haiku network of a convolution and a dense layer behind the flattened features.

https://github.com/google-deepmind/dm-haiku/issues/738
"""

import haiku as hk
import jax
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = tnn.Conv2d(3, 4, 3, padding=1), tnn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).flatten(1))


def features(x):
    return jax.nn.relu(hk.Conv2D(4, 3, name="conv")(x.transpose(0, 2, 3, 1)))


def net(x):
    x = features(x).transpose(0, 3, 1, 2)
    return hk.Linear(5, name="out")(x.reshape(len(x), -1))


def faulty_net(x):
    x = features(x)
    x = x.reshape(len(x), -1)  # fault
    return hk.Linear(5, name="out")(x)  # fault


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return hk.without_apply_rng(hk.transform(net))


def build_faulty():
    return hk.without_apply_rng(hk.transform(faulty_net))
