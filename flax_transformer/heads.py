"""The output head: a projection of its own, or the transposed token embedding."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_transformer.attention import soft_cap
from flax_transformer.embeddings import Embed
from transformer_spec.config import ModelConfig


class HeadBias(nn.Module):
    """logits + b: all that a tied head with a bias owns."""

    vocab_size: int

    def setup(self):
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocab_size,), jnp.float32)

    def __call__(self, logits: Float[Array, "B T V"]) -> Float[Array, "B T V"]:
        return logits + self.bias


def make_head(config: ModelConfig) -> nn.Module | None:
    """An untied head's projection; of a tied head, its bias or None."""
    if not config.tie_embeddings:
        return nn.Dense(config.vocab_size, use_bias=config.head_bias)
    return HeadBias(config.vocab_size) if config.head_bias else None


def head_logits(
    config: ModelConfig, lm_head: nn.Module | None, embed: Embed | None, hidden: Array
) -> Float[Array, "B T V"]:
    """The logits of the output head, tied to the token embedding or not, under their soft cap."""
    if config.tie_embeddings:
        if embed is None:
            raise ValueError("embed: none given; a tied head is the token embedding")
        hidden = embed.attend(hidden)
    logits = hidden if lm_head is None else lm_head(hidden)
    return soft_cap(logits, config.logit_cap)
