"""A gated feed-forward layer: exact GELU as a torch module beside jax's default, the tanh form.

https://github.com/google/gemma_pytorch/issues/33
"""

import flax.linen as nn
import jax
import torch
from torch import nn as tnn


class Mlp(tnn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = tnn.Linear(8, 24, bias=False), tnn.Linear(8, 24, bias=False)
        self.down_proj, self.act_fn = tnn.Linear(24, 8, bias=False), tnn.GELU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class FlaxMlp(nn.Module):
    approximate: bool

    @nn.compact
    def __call__(self, x):
        gate = nn.Dense(24, use_bias=False, name="gate_proj")(x)
        up = nn.Dense(24, use_bias=False, name="up_proj")(x)
        gate = jax.nn.gelu(gate, approximate=self.approximate)  # fault
        return nn.Dense(8, use_bias=False, name="down_proj")(gate * up)


def build_torch():
    torch.manual_seed(0)
    return Mlp().eval()


def build_jax():
    return FlaxMlp(approximate=False)


def build_faulty():
    return FlaxMlp(approximate=True)
