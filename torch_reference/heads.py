"""The output head: a projection of its own, or the transposed token embedding."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torch_reference.attention import soft_cap
from torch_reference.embeddings import Embed
from transformer_spec.config import ModelConfig


class HeadBias(nn.Module):
    """logits + b: all that a tied head with a bias owns."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, logits: Float[Tensor, "B T V"]) -> Float[Tensor, "B T V"]:
        return logits + self.bias


def make_head(config: ModelConfig) -> nn.Module | None:
    """An untied head's projection; of a tied head, its bias or None."""
    if not config.tie_embeddings:
        return nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)
    return HeadBias(config.vocab_size) if config.head_bias else None


def head_logits(
    config: ModelConfig, lm_head: nn.Module | None, embed: Embed | None, hidden: Tensor
) -> Float[Tensor, "B T V"]:
    """The logits of the output head, tied to the token embedding or not, under their soft cap."""
    if config.tie_embeddings:
        if embed is None:
            raise ValueError("embed: none given; a tied head is the token embedding")
        hidden = embed.attend(hidden)
    logits = hidden if lm_head is None else lm_head(hidden)
    return soft_cap(logits, config.logit_cap)
