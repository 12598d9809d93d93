"""Features standardized over the sequence: torch's `std` divides by n - 1, jax's by n.

https://github.com/pytorch/pytorch/issues/50010
"""

import jax
import torch
from torch import nn as tnn


class Standardized(tnn.Module):
    def __init__(self):
        super().__init__()
        self.out = tnn.Linear(4, 3)

    def forward(self, x):
        x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-3)
        return self.out(x)


def standardized(params, x):
    x = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True, ddof=1) + 1e-3)
    return x @ params["out"]["weight"] + params["out"]["bias"]


def standardized_by_n(params, x):
    std = x.std(1, keepdims=True)  # fault
    x = (x - x.mean(1, keepdims=True)) / (std + 1e-3)
    return x @ params["out"]["weight"] + params["out"]["bias"]


PARAMS = {
    "out": {"weight": jax.random.normal(jax.random.key(0), (4, 3)), "bias": jax.numpy.ones(3)}
}


def build_torch():
    torch.manual_seed(0)
    return Standardized().eval()


def build_jax():
    return standardized, PARAMS


def build_faulty():
    return standardized_by_n, PARAMS
