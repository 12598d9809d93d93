"""Feed-forward sublayers: the same two or three matrices at every position."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torch_reference.dropout import Dropout
from transformer_spec import config as spec

# gelu is x Phi(x) with the error function (torch's default, BERT); gelu_tanh is its approximation
# (jax.nn.gelu's default, GPT-2). They differ by up to 5e-4.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": partial(F.gelu, approximate="none"),
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
}


class FeedForward(nn.Module):
    """y = f(x W_up + b_up) W_down + b_down, with dropout on the hidden layer.

    Source: Vaswani et al. 2017, equation 2 (f = ReLU); Hendrycks and Gimpel 2016 (GELU).
    """

    def __init__(self, config: spec.ModelConfig, activation: str):
        super().__init__()
        c = config
        self.activation = activation
        self.up_proj = nn.Linear(c.d_model, c.d_ff, bias=c.ffn_bias)
        self.down_proj = nn.Linear(c.d_ff, c.d_model, bias=c.ffn_bias)
        self.hidden_dropout = Dropout(c.ffn_hidden_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        hidden = ACTIVATIONS[self.activation](self.up_proj(x))
        return self.down_proj(self.hidden_dropout(hidden))


class GatedFeedForward(nn.Module):
    """y = (f(x W_gate) * x W_up) W_down: GLU with sigmoid, GEGLU with gelu, SwiGLU with silu.

    Source: Shazeer 2020, equations 5 and 6. The activation is on the gate alone.
    """

    def __init__(self, config: spec.ModelConfig, activation: str):
        super().__init__()
        c = config
        self.activation = activation
        self.gate_proj = nn.Linear(c.d_model, c.d_ff, bias=c.ffn_bias)
        self.up_proj = nn.Linear(c.d_model, c.d_ff, bias=c.ffn_bias)
        self.down_proj = nn.Linear(c.d_ff, c.d_model, bias=c.ffn_bias)
        self.hidden_dropout = Dropout(c.ffn_hidden_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        hidden = ACTIVATIONS[self.activation](self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(self.hidden_dropout(hidden))
