"""Feed-forward sublayers: the same two or three matrices at every position."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
from jaxtyping import Array, Float

from flax_transformer.dropout import Dropout
from transformer_spec import config as spec

# gelu is x Phi(x) with the error function (torch's default, BERT); gelu_tanh is its approximation
# (jax.nn.gelu's default, GPT-2). They differ by up to 5e-4.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
}


class FeedForward(nn.Module):
    """y = f(x W_up + b_up) W_down + b_down, with dropout on the hidden layer.

    Source: Vaswani et al. 2017, equation 2 (f = ReLU); Hendrycks and Gimpel 2016 (GELU).
    """

    config: spec.ModelConfig
    activation: str

    def setup(self):
        c = self.config
        self.up_proj = nn.Dense(c.d_ff, use_bias=c.ffn_bias)
        self.down_proj = nn.Dense(c.d_model, use_bias=c.ffn_bias)
        self.hidden_dropout = Dropout(c.ffn_hidden_dropout)

    def __call__(
        self, x: Float[Array, "B T D"], *, deterministic: bool = True
    ) -> Float[Array, "B T D"]:
        hidden = ACTIVATIONS[self.activation](self.up_proj(x))
        return self.down_proj(self.hidden_dropout(hidden, deterministic=deterministic))


class GatedFeedForward(nn.Module):
    """y = (f(x W_gate) * x W_up) W_down: GLU with sigmoid, GEGLU with gelu, SwiGLU with silu.

    Source: Shazeer 2020, equations 5 and 6. The activation is on the gate alone.
    """

    config: spec.ModelConfig
    activation: str

    def setup(self):
        c = self.config
        self.gate_proj = nn.Dense(c.d_ff, use_bias=c.ffn_bias)
        self.up_proj = nn.Dense(c.d_ff, use_bias=c.ffn_bias)
        self.down_proj = nn.Dense(c.d_model, use_bias=c.ffn_bias)
        self.hidden_dropout = Dropout(c.ffn_hidden_dropout)

    def __call__(
        self, x: Float[Array, "B T D"], *, deterministic: bool = True
    ) -> Float[Array, "B T D"]:
        hidden = ACTIVATIONS[self.activation](self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(self.hidden_dropout(hidden, deterministic=deterministic))
