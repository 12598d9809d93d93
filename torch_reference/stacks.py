"""Encoder and decoder: embeddings, blocks and, under pre-norm, a final norm."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torch_reference.blocks import Block
from torch_reference.dropout import Dropout
from torch_reference.embeddings import Embed, check_ids, check_inputs
from torch_reference.masks import (
    causal_mask,
    check_mask,
    combine_masks,
    padding_mask,
    positions_from,
)
from torch_reference.norms import make_norm
from torch_reference.positions import make_positions
from transformer_spec.config import ModelConfig, PreNorm

TokenMask = Bool[Tensor, "..."] | None
Mask = Bool[Tensor, "..."] | None
Positions = Int[Tensor, "..."] | None


class Stack(nn.Module):
    """What encoder and decoder share: embeddings, blocks and, under pre-norm, a final norm.

    The token embedding belongs to the stack unless the config shares one among the stacks; then
    the caller passes it.
    """

    @property
    def depth(self) -> int:
        return self.config.num_layers

    @property
    def cross_attention(self) -> bool:
        return False

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = c = config
        self.embed = None if c.share_embeddings else Embed(c)
        self.pos_embed = make_positions(c)
        self.embed_dropout = Dropout(c.embed_dropout)
        self.layers = nn.ModuleList(Block(c, self.cross_attention) for _ in range(self.depth))
        self.final_norm = make_norm(c) if isinstance(c.residual, PreNorm) else None

    def inputs(
        self, tokens: Tensor, token_mask: TokenMask, positions: Positions, embed: Embed | None
    ) -> Float[Tensor, "B T D"]:
        """E[token] * scale + P[position], before dropout."""
        table = self.embed if embed is None else embed
        if table is None:
            raise ValueError("embed: none given; this config shares one among its stacks")
        x = table(tokens)
        if self.pos_embed is None:
            return x
        if positions is not None:
            check_ids(positions, self.config.max_seq_len, "positions")
        elif token_mask is not None:
            positions = positions_from(token_mask)
        else:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        return x + self.pos_embed(positions).to(x.dtype)

    def finish(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return x if self.final_norm is None else self.final_norm(x)


class Encoder(Stack):
    """Blocks whose queries see every token of their own row."""

    def forward(
        self,
        tokens: Int[Tensor, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        *,
        embed: Embed | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Hidden states [B, T, D].

        Args:
            tokens: ids [B, T].
            token_mask: bool [B, T], False at padding; padding is not attended to.
            mask: bool, broadcastable to [B, N, T, T]: whatever else restricts attention.
            positions: ids [B, T]; by default each token's number among the tokens of its row.
            embed: the shared token embedding, where the config shares one.
        Raises:
            ValueError: an argument has the wrong shape, dtype or range; the message names it.
        """
        mask = self_attention_mask(self.config, tokens, token_mask, mask, causal=False)
        x = self.inputs(tokens, token_mask, positions, embed)
        x = self.embed_dropout(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.finish(x)


class Decoder(Stack):
    """Blocks whose queries see no later token; beside an encoder they attend to its output too."""

    @property
    def depth(self) -> int:
        return self.config.num_decoder_layers or self.config.num_layers

    @property
    def cross_attention(self) -> bool:
        return self.config.arch == "encoder_decoder"

    def forward(
        self,
        tokens: Int[Tensor, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_token_mask: TokenMask = None,
        embed: Embed | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Hidden states [B, T, D]; `memory` [B, S, D] is the encoder's output."""
        mask = self_attention_mask(self.config, tokens, token_mask, mask, causal=True)
        memory_mask = None if memory_token_mask is None else padding_mask(memory_token_mask)
        x = self.inputs(tokens, token_mask, positions, embed)
        x = self.embed_dropout(x)
        for layer in self.layers:
            x = layer(x, mask, memory, memory_mask)
        return self.finish(x)


def self_attention_mask(
    config: ModelConfig, tokens: Tensor, token_mask: TokenMask, mask: Mask, *, causal: bool
) -> Mask:
    """All that restricts self-attention, combined; the inputs are checked on the way."""
    check_inputs(config, tokens, token_mask, "tokens")
    batch, length = tokens.shape
    if mask is not None:
        check_mask(mask, (batch, config.num_heads, length, length))
    padding = None if token_mask is None else padding_mask(token_mask)
    return combine_masks(causal_mask(length, tokens.device) if causal else None, padding, mask)
