"""Stacks of blocks, and the models with a language head on them."""

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
        x = (embed or self.embed)(tokens)
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
        """Hidden states [B, T, D]; `memory` [B, S, D] is the encoder's output, the rest as there."""
        mask = self_attention_mask(self.config, tokens, token_mask, mask, causal=True)
        memory_mask = None if memory_token_mask is None else padding_mask(memory_token_mask)
        x = self.inputs(tokens, token_mask, positions, embed)
        x = self.embed_dropout(x)
        for layer in self.layers:
            x = layer(x, mask, memory, memory_mask)
        return self.finish(x)


class LanguageModel(nn.Module):
    """A decoder with an output head: logits of the next token at every position."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = c = config
        self.decoder = Decoder(c)
        self.lm_head = make_head(c)

    def forward(
        self,
        tokens: Int[Tensor, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits [B, T, V]; the arguments are those of `Encoder`."""
        hidden = self.decoder(tokens, token_mask, mask, positions)
        return self.decoder.embed.attend(hidden) if self.lm_head is None else self.lm_head(hidden)


class EncoderDecoder(nn.Module):
    """The 2017 architecture: an encoder of the source, a decoder of the target, an output head."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = c = config
        self.embed = Embed(c) if c.share_embeddings else None
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)
        self.lm_head = make_head(c)

    def forward(
        self,
        source: Int[Tensor, "..."],
        target: Int[Tensor, "..."],
        source_mask: TokenMask = None,
        target_mask: TokenMask = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits [B, T, V] of the token after each target token.

        Args:
            source, target: ids [B, S] and [B, T]; the target begins with its start token.
            source_mask, target_mask: bool, False at padding.
        Raises:
            ValueError: an argument has the wrong shape, dtype or range; the message names it.
        """
        memory = self.encode(source, source_mask)
        return self.decode(target, memory, source_mask, target_mask)

    def encode(
        self, source: Int[Tensor, "..."], source_mask: TokenMask = None
    ) -> Float[Tensor, "B S D"]:
        """The memory that the decoder attends to."""
        check_inputs(self.config, source, source_mask, "source")
        return self.encoder(source, source_mask, embed=self.embed)

    def decode(
        self,
        target: Int[Tensor, "..."],
        memory: Float[Tensor, "B S D"],
        source_mask: TokenMask = None,
        target_mask: TokenMask = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits given the encoder's output."""
        check_inputs(self.config, target, target_mask, "target")
        hidden = self.decoder(
            target,
            target_mask,
            memory=memory,
            memory_token_mask=source_mask,
            embed=self.embed,
        )
        embed = self.embed or self.decoder.embed
        return embed.attend(hidden) if self.lm_head is None else self.lm_head(hidden)


def make_head(config: ModelConfig) -> nn.Linear | None:
    """The output head; None where it is the transposed token embedding."""
    if config.tie_embeddings:
        return None
    return nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)


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


def build_model(config: ModelConfig) -> Encoder | LanguageModel | EncoderDecoder:
    """The model of the config's arch."""
    match config.arch:
        case "encoder":
            return Encoder(config)
        case "decoder":
            return LanguageModel(config)
        case "encoder_decoder":
            return EncoderDecoder(config)
