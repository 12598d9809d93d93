"""Encoder and decoder: embeddings, blocks and, under pre-norm, a final norm."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flax_transformer.blocks import Block
from flax_transformer.dropout import Dropout
from flax_transformer.embeddings import Embed, check_ids, check_inputs
from flax_transformer.masks import (
    causal_mask,
    check_mask,
    combine_masks,
    padding_mask,
    positions_from,
)
from flax_transformer.norms import make_norm
from flax_transformer.positions import make_positions
from transformer_spec.config import ModelConfig, PreNorm

TokenMask = Bool[Array, "..."] | None
Mask = Bool[Array, "..."] | None
Positions = Int[Array, "..."] | None


class Stack(nn.Module):
    """What encoder and decoder share: embeddings, blocks and, under pre-norm, a final norm.

    The token embedding belongs to the stack unless the config shares one among the stacks; then
    the caller passes it.
    """

    config: ModelConfig

    @property
    def depth(self) -> int:
        return self.config.num_layers

    @property
    def cross_attention(self) -> bool:
        return False

    def setup(self):
        c = self.config
        self.embed = None if c.share_embeddings else Embed(c)
        self.pos_embed = make_positions(c)
        self.embed_dropout = Dropout(c.embed_dropout)
        self.layers = [Block(c, self.cross_attention) for _ in range(self.depth)]
        self.final_norm = make_norm(c) if isinstance(c.residual, PreNorm) else None

    def inputs(
        self, tokens: Array, token_mask: TokenMask, positions: Positions, embed: Embed | None
    ) -> Float[Array, "B T D"]:
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
            positions = jnp.arange(tokens.shape[1])
        return x + self.pos_embed(positions).astype(x.dtype)

    def finish(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return x if self.final_norm is None else self.final_norm(x)


class Encoder(Stack):
    """Blocks whose queries see every token of their own row."""

    def __call__(
        self,
        tokens: Int[Array, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        *,
        embed: Embed | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B T D"]:
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
        x = self.embed_dropout(x, deterministic=deterministic)
        for layer in self.layers:
            x = layer(x, mask, deterministic=deterministic)
        return self.finish(x)


class Decoder(Stack):
    """Blocks whose queries see no later token; beside an encoder they attend to its output too."""

    @property
    def depth(self) -> int:
        return self.config.num_decoder_layers or self.config.num_layers

    @property
    def cross_attention(self) -> bool:
        return self.config.arch == "encoder_decoder"

    def __call__(
        self,
        tokens: Int[Array, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        *,
        memory: Float[Array, "B S D"] | None = None,
        memory_token_mask: TokenMask = None,
        embed: Embed | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B T D"]:
        """Hidden states [B, T, D]; `memory` [B, S, D] is the encoder's output."""
        mask = self_attention_mask(self.config, tokens, token_mask, mask, causal=True)
        memory_mask = None if memory_token_mask is None else padding_mask(memory_token_mask)
        x = self.inputs(tokens, token_mask, positions, embed)
        x = self.embed_dropout(x, deterministic=deterministic)
        for layer in self.layers:
            x = layer(x, mask, memory, memory_mask, deterministic=deterministic)
        return self.finish(x)


def self_attention_mask(
    config: ModelConfig, tokens: Array, token_mask: TokenMask, mask: Mask, *, causal: bool
) -> Mask:
    """All that restricts self-attention, combined; the inputs are checked on the way."""
    check_inputs(config, tokens, token_mask, "tokens")
    batch, length = tokens.shape
    if mask is not None:
        check_mask(mask, (batch, config.num_heads, length, length))
    padding = None if token_mask is None else padding_mask(token_mask)
    return combine_masks(causal_mask(length) if causal else None, padding, mask)
