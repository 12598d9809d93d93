"""Encoder and decoder: embeddings, positions, blocks and, under pre-norm, a final norm."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flax_transformer.blocks import Block
from flax_transformer.cache import KVCache, check_room, refuse_beside_cache
from flax_transformer.dropout import Dropout
from flax_transformer.embeddings import Embed, check_inputs, check_positions, check_token_types
from flax_transformer.masks import (
    check_mask,
    check_token_mask,
    combine_masks,
    decoder_mask,
    padding_mask,
    positions_from,
    two_channel_positions,
)
from flax_transformer.norms import make_norm
from flax_transformer.positions import Rotation, make_positions, make_rotary, make_score_bias
from transformer_spec.config import Causal, ModelConfig, PrefixLM, TwoChannelRotary

TokenMask = Bool[Array, "..."] | None
Mask = Bool[Array, "..."] | None
Positions = Int[Array, "..."] | None
ScoreBias = Float[Array, "..."] | None


class Text(NamedTuple):
    """Tokens of a text, S of them: what masks, rotations and biases need to know.

    indices: [S], the place of each in its text. positions: their ids [B or 1, S], or [B, 2, S] of
    two channels. token_mask, prefix_mask: bool [B, S].
    """

    indices: Int[Array, "S"]
    positions: Int[Array, "..."]
    token_mask: TokenMask
    prefix_mask: TokenMask

    def take(self, indices: Int[Array, "K"]) -> "Text":
        """The tokens at these places of a whole text."""
        masks = [m if m is None else m[:, indices] for m in (self.token_mask, self.prefix_mask)]
        return Text(indices, self.positions[..., indices], *masks)


class Stack(nn.Module):
    """What encoder and decoder share: embeddings, positions, blocks and, under pre-norm, a norm.

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

    @property
    def bidirectional(self) -> bool:
        return True

    def setup(self):
        c = self.config
        self.embed = None if c.share_embeddings else Embed(c)
        self.pos_embed = make_positions(c)
        self.rotary = make_rotary(c)
        self.rel_bias = make_score_bias(c, self.bidirectional)
        self.type_embed = nn.Embed(c.num_token_types, c.d_model) if c.num_token_types else None
        self.embed_norm = make_norm(c.norm, c.d_model) if c.embed_norm else None
        self.embed_dropout = Dropout(c.embed_dropout)
        self.layers = [Block(c, self.cross_attention) for _ in range(self.depth)]
        self.final_norm = make_norm(c.norm, c.d_model) if c.has_final_norm else None

    def inputs(
        self,
        tokens: Array,
        positions: Array,
        token_types: Array | None,
        embed: Embed | None,
    ) -> Float[Array, "B T D"]:
        """E[token] * scale + P[position] + S[segment], normalized where the config says so."""
        table = self.embed if embed is None else embed
        if table is None:
            raise ValueError("embed: none given; this config shares one among its stacks")
        x = table(tokens)
        if self.pos_embed is not None:
            x = x + self.pos_embed(positions).astype(x.dtype)
        if self.type_embed is not None:
            x = x + self.type_embed(jnp.zeros_like(tokens) if token_types is None else token_types)
        return x if self.embed_norm is None else self.embed_norm(x)

    def rotation(self, positions: Array) -> Rotation | None:
        """The rotation of queries and keys, where the position slot asks for one."""
        if self.rotary is None:
            return None
        # One channel, or the two that stand before the tokens' axis.
        channels = positions[..., None] if positions.ndim == 2 else positions.swapaxes(1, 2)
        return self.rotary(channels)

    def score_bias(self, positions: Array, key_positions: Array) -> ScoreBias:
        """The bias on scores, where the position slot asks for one."""
        return None if self.rel_bias is None else self.rel_bias(positions, key_positions)

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
        token_types: Positions = None,
        *,
        embed: Embed | None = None,
        tokens_name: str = "tokens",
        deterministic: bool = True,
    ) -> Float[Array, "B T D"]:
        """Hidden states [B, T, D].

        Args:
            tokens: ids [B, T].
            token_mask: bool [B, T], False at padding; padding is not attended to.
            mask: bool, broadcastable to [B, N, T, T]: any further restriction of attention.
            positions: ids [B, T]; by default each token's number among the tokens of its row.
            token_types: the segment of each token [B, T]; by default 0.
            embed: the shared token embedding, where the config shares one.
            tokens_name: what errors call the tokens.
        Raises:
            ValueError: an argument has the wrong shape, dtype or range; the message names it.
        """
        check_inputs(self.config, tokens, token_mask, tokens_name)
        mask = self_attention_mask(self.config, tokens, token_mask, mask, None)
        check_token_types(token_types, self.config, tokens.shape)
        positions = token_positions(self.config, tokens, token_mask, positions)
        x = self.inputs(tokens, positions, token_types, embed)
        rotation, bias = self.rotation(positions), self.score_bias(positions, positions)
        x = self.embed_dropout(x, deterministic=deterministic)
        for layer in self.layers:
            x, _ = layer(x, mask, None, None, rotation, bias, None, deterministic)
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

    def __call__(
        self,
        tokens: Int[Array, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        prefix_mask: TokenMask = None,
        cache: KVCache | None = None,
        *,
        memory: Float[Array, "B S D"] | None = None,
        memory_token_mask: TokenMask = None,
        embed: Embed | None = None,
        tokens_name: str = "tokens",
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T D"], KVCache | None]:
        """Hidden states [B, T, D], and the cache with these tokens added to it.

        Arguments are those of `Encoder`, and:

        Args:
            prefix_mask: bool [B, T], True in the prefix that every query sees, under PrefixLM; with
                a cache, a prefix is whole within one call.
            positions: [B, 2, T] under two-channel rotary positions.
            cache: what was read before; `mask` and `positions` are not usable beside it.
            memory: the encoder's output [B, S, D], padding where `memory_token_mask` is False.
        """
        check_inputs(self.config, tokens, token_mask, tokens_name)
        if prefix_mask is not None:
            check_token_mask(prefix_mask, tuple(tokens.shape), "prefix_mask")
        if cache is not None:
            refuse_beside_cache(mask, positions)
            check_room(self.config, cache, tokens)
        text, queries, cache = locate(
            self.config, tokens, token_mask, positions, prefix_mask, cache
        )
        memory_mask = None if memory_token_mask is None else padding_mask(memory_token_mask)
        x = self.inputs(tokens, queries.positions, None, embed)
        rotation = self.rotation(queries.positions)
        x = self.embed_dropout(x, deterministic=deterministic)
        # Layers with the same window and as many slots share a mask and a bias.
        shared: dict[tuple[Causal | PrefixLM, int | None], tuple[Mask, ScoreBias]] = {}
        layer_caches = []
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else cache.layers[i]
            kind = self.config.layer_mask(i), layer_cache and layer_cache.num_slots
            if kind not in shared:
                indices = layer_cache and layer_cache.token_indices(tokens.shape[1])
                keys = text if indices is None else text.take(indices)
                stack_mask = decoder_mask(kind[0], queries.indices, keys.indices, keys.prefix_mask)
                shared[kind] = (
                    self_attention_mask(self.config, tokens, keys.token_mask, mask, stack_mask),
                    self.score_bias(queries.positions, keys.positions),
                )
            layer_mask, bias = shared[kind]
            x, layer_cache = layer(
                x, layer_mask, memory, memory_mask, rotation, bias, layer_cache, deterministic
            )
            layer_caches.append(layer_cache)
        return self.finish(x), cache and cache._replace(layers=tuple(layer_caches))


def locate(
    config: ModelConfig,
    tokens: Array,
    token_mask: TokenMask,
    positions: Positions,
    prefix_mask: TokenMask,
    cache: KVCache | None,
) -> tuple[Text, Text, KVCache | None]:
    """The text, the tokens of this call within it, and the cache with their masks.

    Without a cache, the tokens are the text.
    """
    indices = jnp.arange(tokens.shape[1])
    if cache is None:
        positions = token_positions(config, tokens, token_mask, positions, prefix_mask)
        text = Text(indices, positions, token_mask, prefix_mask)
        return text, text, None
    if token_mask is None:
        token_mask = jnp.ones(tokens.shape, bool)
    cache = cache.with_masks(token_mask, prefix_mask)
    masks = cache.token_mask, cache.prefix_mask
    positions = token_positions(config, tokens, masks[0], None, masks[1])
    text = Text(jnp.arange(masks[0].shape[1]), positions, *masks)
    return text, text.take(cache.length + indices), cache


def self_attention_mask(
    config: ModelConfig, tokens: Array, token_mask: TokenMask, mask: Mask, stack_mask: Mask
) -> Mask:
    """All that restricts self-attention: the stack's own mask, padding, and the caller's."""
    batch, length = tokens.shape
    if mask is not None:
        check_mask(mask, (batch, config.num_heads, length, length))
    padding = None if token_mask is None else padding_mask(token_mask)
    return combine_masks(stack_mask, padding, mask)


def token_positions(
    config: ModelConfig,
    tokens: Array,
    token_mask: TokenMask,
    positions: Positions,
    prefix_mask: TokenMask = None,
) -> Array:
    """Positions [B or 1, T], or [B, 2, T] of two channels.

    Those given, checked; else each token's number among the tokens of its row.
    """
    two = isinstance(config.position, TwoChannelRotary)
    if positions is not None:
        check_positions(positions, config, tokens.shape, two)
        return positions
    if token_mask is None:
        positions = jnp.arange(tokens.shape[1])[None]
    else:
        positions = positions_from(token_mask)
    if not two:
        return positions
    if prefix_mask is None:
        prefix_mask = jnp.zeros(tokens.shape, bool)
    elif token_mask is not None:
        prefix_mask = prefix_mask & token_mask
    return two_channel_positions(positions, prefix_mask)
