"""Squeeze and excitation as its printed form lists the layers: the ReLU behind both of them.

https://github.com/pytorch/vision/issues/8209
"""

import equinox as eqx
import jax
import torch
from torch import nn as tnn


class SqueezeExcitation(tnn.Module):
    def __init__(self):
        super().__init__()
        self.avgpool = tnn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = tnn.Conv2d(6, 3, 1), tnn.Conv2d(3, 6, 1)
        self.activation, self.scale_activation = tnn.ReLU(), tnn.Sigmoid()

    def forward(self, x):
        scale = self.activation(self.fc1(self.avgpool(x)))
        return x * self.scale_activation(self.fc2(scale))


class EqxSqueezeExcitation(eqx.Module):
    fc1: eqx.nn.Conv2d
    fc2: eqx.nn.Conv2d
    between: bool

    def __init__(self, between):
        first, second = jax.random.split(jax.random.key(0))
        self.fc1, self.fc2 = eqx.nn.Conv2d(6, 3, 1, key=first), eqx.nn.Conv2d(3, 6, 1, key=second)
        self.between = between

    def scale(self, x):
        x = self.fc1(x.mean((1, 2), keepdims=True))
        if self.between:
            return self.fc2(jax.nn.relu(x))
        x = self.fc2(x)  # fault
        return jax.nn.relu(x)  # fault

    def __call__(self, x):
        return jax.vmap(lambda image: image * jax.nn.sigmoid(self.scale(image)))(x)


def build_torch():
    torch.manual_seed(0)
    return SqueezeExcitation().eval()


def build_jax():
    return EqxSqueezeExcitation(between=True)


def build_faulty():
    return EqxSqueezeExcitation(between=False)
