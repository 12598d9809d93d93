"""Normalization over the features of each token. Statistics are taken in float32 or wider."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer_spec import config as spec


def widen(x: Tensor) -> Tensor:
    """`x` in float32, or in its own type where that is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class LayerNorm(nn.Module):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with var = mean((x - mean)**2).

    Args:
        features: D, the width of the last axis.
        eps: added inside the root.
    Source: Ba et al. 2016, equation 3.
    Differences: `nn.LayerNorm` of torch is this with eps 1e-5; Linen's defaults to eps 1e-6 and to
    the one-pass variance mean(x**2) - mean(x)**2, which loses digits where |mean| is large.
    """

    def __init__(self, features: int, eps: float):
        super().__init__()
        self.features, self.eps = features, eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return F.layer_norm(x, (self.features,), self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x**2) + eps) * (offset + weight), rounded to x's type once, at the end.

    Args:
        features: D, the width of the last axis.
        eps: added inside the root.
        offset: 1 where the parameter is the distance of the weight from 1 (Gemma), else 0.
    Source: Zhang and Sennrich 2019, equation 4.
    Differences: `F.rms_norm` of torch has eps = machine epsilon by default, and LLaMA's own code
    rounds x / rms to x's type before it multiplies by the weight.
    """

    def __init__(self, features: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.weight = nn.Parameter(torch.full((features,), 1 - offset))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        wide = widen(x)
        mean_square = wide.square().mean(-1, keepdim=True)
        normed = wide / torch.sqrt(mean_square + self.eps)
        return (normed * (self.offset + widen(self.weight))).to(x.dtype)


class StdLayerNorm(nn.Module):
    """y = (x - mean) / (std + eps) * weight + bias, with std**2 = sum((x - mean)**2) / (D - 1).

    The hand-written layer of many tutorials: it differs from LayerNorm by the unbiased standard
    deviation (torch's default for `x.std()`) and by eps outside the root. A constant row gives the
    bias; its gradient with respect to x, undefined in the formula, is that of (x - mean) / eps.

    Args:
        features: D, at least 2.
        eps: added to the standard deviation.
    Source: the Annotated Transformer (Rush 2018).
    """

    def __init__(self, features: int, eps: float):
        super().__init__()
        self.features, self.eps = features, eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        wide = widen(x)
        centered = wide - wide.mean(-1, keepdim=True)
        variance = centered.square().sum(-1, keepdim=True) / (self.features - 1)
        spread = variance > 0
        # The slope of the root at 0 is infinite; the inner where keeps it out of the gradient.
        std = torch.where(spread, torch.sqrt(torch.where(spread, variance, 1.0)), 0.0)
        return (centered / (std + self.eps) * self.weight + self.bias).to(x.dtype)


def make_norm(slot: spec.LayerNorm | spec.RMSNorm | spec.StdLayerNorm, features: int) -> nn.Module:
    """The layer of `features` that fills the norm slot."""
    match slot:
        case spec.LayerNorm(eps=eps):
            return LayerNorm(features, eps)
        case spec.RMSNorm(eps=eps, offset=offset):
            return RMSNorm(features, eps, offset)
        case spec.StdLayerNorm(eps=eps):
            return StdLayerNorm(features, eps)
