"""Encoder and decoder: embeddings, positions, blocks and, under pre-norm, a final norm."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from torch_reference.blocks import Block
from torch_reference.cache import KVCache, read_on, refuse_beside_cache
from torch_reference.dropout import Dropout
from torch_reference.embeddings import Embed, check_inputs, check_positions, check_token_types
from torch_reference.masks import (
    check_mask,
    check_token_mask,
    combine_masks,
    decoder_mask,
    padding_mask,
    positions_from,
    two_channel_positions,
)
from torch_reference.norms import make_norm
from torch_reference.positions import Rotation, make_positions, make_rotary, make_score_bias
from transformer_spec.config import ModelConfig, TwoChannelRotary

TokenMask = Bool[Tensor, "..."] | None
Mask = Bool[Tensor, "..."] | None
Positions = Int[Tensor, "..."] | None


class Stack(nn.Module):
    """What encoder and decoder share: embeddings, positions, blocks and, under pre-norm, a norm.

    The token embedding belongs to the stack unless the config shares one among the stacks; then
    the caller passes it.
    """

    @property
    def depth(self) -> int:
        return self.config.num_layers

    @property
    def cross_attention(self) -> bool:
        return False

    @property
    def bidirectional(self) -> bool:
        return True

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = c = config
        self.embed = None if c.share_embeddings else Embed(c)
        self.pos_embed = make_positions(c)
        self.rotary = make_rotary(c)
        self.rel_bias = make_score_bias(c, self.bidirectional)
        self.type_embed = nn.Embedding(c.num_token_types, c.d_model) if c.num_token_types else None
        self.embed_norm = make_norm(c) if c.embed_norm else None
        self.embed_dropout = Dropout(c.embed_dropout)
        self.layers = nn.ModuleList(Block(c, self.cross_attention) for _ in range(self.depth))
        self.final_norm = make_norm(c) if c.has_final_norm else None

    def inputs(
        self,
        tokens: Tensor,
        positions: Tensor,
        token_types: Tensor | None,
        embed: Embed | None,
    ) -> Float[Tensor, "B T D"]:
        """E[token] * scale + P[position] + S[segment], normalized where the config says so."""
        table = self.embed if embed is None else embed
        if table is None:
            raise ValueError("embed: none given; this config shares one among its stacks")
        x = table(tokens)
        if self.pos_embed is not None:
            x = x + self.pos_embed(positions).to(x.dtype)
        if self.type_embed is not None:
            x = x + self.type_embed(
                torch.zeros_like(tokens) if token_types is None else token_types
            )
        return x if self.embed_norm is None else self.embed_norm(x)

    def attention_positions(
        self, positions: Tensor, key_positions: Tensor
    ) -> tuple[Rotation | None, Float[Tensor, "..."] | None]:
        """The rotation of queries and keys, and the bias on scores, that positions ask for."""
        rotation = bias = None
        if self.rotary is not None:
            # One channel, or the two that stand before the tokens' axis.
            channels = positions[..., None] if positions.ndim == 2 else positions.swapaxes(1, 2)
            rotation = self.rotary(channels)
        if self.rel_bias is not None:
            bias = self.rel_bias(positions, key_positions)
        return rotation, bias

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
        token_types: Positions = None,
        *,
        embed: Embed | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Hidden states [B, T, D].

        Args:
            tokens: ids [B, T].
            token_mask: bool [B, T], False at padding; padding is not attended to.
            mask: bool, broadcastable to [B, N, T, T]: whatever else restricts attention.
            positions: ids [B, T]; by default each token's number among the tokens of its row.
            token_types: the segment of each token [B, T]; by default 0.
            embed: the shared token embedding, where the config shares one.
        Raises:
            ValueError: an argument has the wrong shape, dtype or range; the message names it.
        """
        check_inputs(self.config, tokens, token_mask, "tokens")
        mask = self_attention_mask(self.config, tokens, token_mask, mask, None)
        check_token_types(token_types, self.config, tokens.shape)
        positions = token_positions(self.config, tokens, token_mask, positions)
        x = self.inputs(tokens, positions, token_types, embed)
        rotation, bias = self.attention_positions(positions, positions)
        x = self.embed_dropout(x)
        for layer in self.layers:
            x = layer(x, mask, None, None, rotation, bias)
        return self.finish(x)


class Decoder(Stack):
    """Blocks whose queries see no later token; beside an encoder they attend to its output too."""

    @property
    def depth(self) -> int:
        return self.config.decoder_depth

    @property
    def cross_attention(self) -> bool:
        return self.config.arch == "encoder_decoder"

    @property
    def bidirectional(self) -> bool:
        return False

    def forward(
        self,
        tokens: Int[Tensor, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        prefix_mask: TokenMask = None,
        cache: KVCache | None = None,
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_token_mask: TokenMask = None,
        embed: Embed | None = None,
    ) -> tuple[Float[Tensor, "B T D"], KVCache | None]:
        """Hidden states [B, T, D], and the cache with these tokens added to it.

        Arguments are those of `Encoder`, and:

        Args:
            prefix_mask: bool [B, T], True in the prefix that every query sees, under PrefixLM; with
                a cache, a prefix is whole within one call.
            positions: [B, 2, T] under two-channel rotary positions.
            cache: what was read before; it keeps positions, and other masks are not usable with it.
            memory: the encoder's output [B, S, D], padding where `memory_token_mask` is False.
        """
        check_inputs(self.config, tokens, token_mask, "tokens")
        if prefix_mask is not None:
            check_token_mask(prefix_mask, tuple(tokens.shape), "prefix_mask")
        if cache is None:
            writer, at = None, torch.arange(tokens.shape[1], device=tokens.device)
            own = decoder_mask(self.config.mask, at, at, prefix_mask)
            mask = self_attention_mask(self.config, tokens, token_mask, mask, own)
            positions = key_positions = token_positions(
                self.config, tokens, token_mask, positions, prefix_mask
            )
        else:
            refuse_beside_cache(mask, positions)
            writer, positions, mask = read_on(self.config, cache, tokens, token_mask, prefix_mask)
            key_positions = writer.cache().positions
        memory_mask = None if memory_token_mask is None else padding_mask(memory_token_mask)
        x = self.inputs(tokens, positions, None, embed)
        rotation, bias = self.attention_positions(positions, key_positions)
        x = self.embed_dropout(x)
        for i, layer in enumerate(self.layers):
            remember = None if writer is None else writer.of(i)
            x = layer(x, mask, memory, memory_mask, rotation, bias, remember)
        return self.finish(x), None if writer is None else writer.cache()


def self_attention_mask(
    config: ModelConfig, tokens: Tensor, token_mask: TokenMask, mask: Mask, own: Mask
) -> Mask:
    """All that restricts self-attention: the stack's own mask, padding, and the caller's."""
    batch, length = tokens.shape
    if mask is not None:
        check_mask(mask, (batch, config.num_heads, length, length))
    padding = None if token_mask is None else padding_mask(token_mask)
    return combine_masks(own, padding, mask)


def token_positions(
    config: ModelConfig,
    tokens: Tensor,
    token_mask: TokenMask,
    positions: Positions,
    prefix_mask: TokenMask = None,
) -> Tensor:
    """Positions [B or 1, T], or [B, 2, T] of two channels.

    Those given, checked; else each token's number among the tokens of its row.
    """
    two = isinstance(config.position, TwoChannelRotary)
    if positions is not None:
        check_positions(positions, config, tokens.shape, two)
        return positions
    if token_mask is None:
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
    else:
        positions = positions_from(token_mask)
    if not two:
        return positions
    if prefix_mask is None:
        prefix_mask = torch.zeros_like(tokens, dtype=torch.bool)
    elif token_mask is not None:
        prefix_mask = prefix_mask & token_mask
    return two_channel_positions(positions, prefix_mask)
