"""Dropout: which values survive is drawn from torch's generator."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Module):
    """y = x * survives / (1 - rate) in training, y = x in evaluation.

    Args:
        rate: the probability that a value becomes 0 (Keras and Flax too name this one; the
            `keep_prob` of old TensorFlow is 1 - rate).
    Source: Srivastava et al. 2014, section 4, scaled in training instead of in evaluation.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
        return F.dropout(x, self.rate, self.training)
