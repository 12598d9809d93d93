"""torch's own encoder layer beside the same in Linen, and with one thing changed in it."""

import flax.linen as nn
import torch
from torch import nn as tnn


class Layer(nn.Module):
    epsilon: float = 1e-5
    pre_norm: bool = False

    @nn.compact
    def __call__(self, x):
        attn = nn.MultiHeadDotProductAttention(4, name="self_attn")
        norm1 = nn.LayerNorm(self.epsilon, use_fast_variance=False, name="norm1")
        norm2 = nn.LayerNorm(1e-5, use_fast_variance=False, name="norm2")
        linear1, linear2 = nn.Dense(32, name="linear1"), nn.Dense(16, name="linear2")
        if self.pre_norm:
            x = x + attn(norm1(x), norm1(x))  # fault pre_norm
            return x + linear2(nn.gelu(linear1(norm2(x)), approximate=False))  # fault pre_norm
        x = norm1(x + attn(x, x))  # fault epsilon
        return norm2(x + linear2(nn.gelu(linear1(x), approximate=False)))


def build_torch():
    torch.manual_seed(0)
    layer = tnn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0, activation="gelu")
    for norm in (layer.norm1, layer.norm2):
        tnn.init.normal_(norm.weight, 1.0, 0.5)
    return layer.eval()


def build_jax():
    return Layer()


def build_epsilon():
    return Layer(epsilon=1e-6)


def build_pre_norm():
    return Layer(pre_norm=True)
