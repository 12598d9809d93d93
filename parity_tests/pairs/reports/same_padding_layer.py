"""Convolved positions of a speech model: of an even kernel's output the last step is dropped.

https://github.com/huggingface/transformers/pull/12271
"""

import flax.linen as nn
import torch
from torch import nn as tnn
from torch.nn import functional as F


class Positions(tnn.Module):
    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv1d(6, 6, 4, padding=2, groups=3)

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))[:, :, :-1]
        return x + F.gelu(y).transpose(1, 2)


class FlaxPositions(nn.Module):
    dropped: str

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(6, (4,), padding=((2, 2),), feature_group_count=3, name="conv")(x)
        y = y[:, :-1] if self.dropped == "last" else y[:, 1:]  # fault
        return x + nn.gelu(y, approximate=False)  # fault


def build_torch():
    torch.manual_seed(0)
    return Positions().eval()


def build_jax():
    return FlaxPositions("last")


def build_faulty():
    return FlaxPositions("first")
