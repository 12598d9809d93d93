"""The models: stacks with a language head on them."""

from typing import Any, cast

import flax.linen as nn
from jaxtyping import Array, Float, Int

from flax_transformer.embeddings import Embed, check_inputs
from flax_transformer.stacks import Decoder, Encoder, Mask, Positions, TokenMask
from transformer_spec.config import ModelConfig


class LanguageModel(nn.Module):
    """A decoder with an output head: logits of the next token at every position."""

    config: ModelConfig

    def setup(self):
        c = self.config
        self.decoder = Decoder(c)
        self.lm_head = make_head(c)

    def __call__(
        self,
        tokens: Int[Array, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T V"]:
        """Logits [B, T, V]; the arguments are those of `Encoder`."""
        hidden = self.decoder(tokens, token_mask, mask, positions, deterministic=deterministic)
        return head_logits(self.lm_head, self.decoder.embed, hidden)


class EncoderDecoder(nn.Module):
    """The 2017 architecture: an encoder of the source, a decoder of the target, an output head."""

    config: ModelConfig

    def setup(self):
        c = self.config
        self.embed = Embed(c) if c.share_embeddings else None
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)
        self.lm_head = make_head(c)

    def __call__(
        self,
        source: Int[Array, "..."],
        target: Int[Array, "..."],
        source_mask: TokenMask = None,
        target_mask: TokenMask = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T V"]:
        """Logits [B, T, V] of the token after each target token.

        Args:
            source, target: ids [B, S] and [B, T]; the target begins with its start token.
            source_mask, target_mask: bool, False at padding.
        Raises:
            ValueError: an argument has the wrong shape, dtype or range; the message names it.
        """
        memory = self.encode(source, source_mask, deterministic=deterministic)
        return self.decode(target, memory, source_mask, target_mask, deterministic=deterministic)

    def encode(
        self,
        source: Int[Array, "..."],
        source_mask: TokenMask = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B S D"]:
        """The memory that the decoder attends to."""
        check_inputs(self.config, source, source_mask, "source")
        return self.encoder(source, source_mask, embed=self.embed, deterministic=deterministic)

    def decode(
        self,
        target: Int[Array, "..."],
        memory: Float[Array, "B S D"],
        source_mask: TokenMask = None,
        target_mask: TokenMask = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T V"]:
        """Logits given the encoder's output."""
        check_inputs(self.config, target, target_mask, "target")
        hidden = self.decoder(
            target,
            target_mask,
            memory=memory,
            memory_token_mask=source_mask,
            embed=self.embed,
            deterministic=deterministic,
        )
        embed = self.decoder.embed if self.embed is None else self.embed
        return head_logits(self.lm_head, embed, hidden)


def make_head(config: ModelConfig) -> nn.Dense | None:
    """The output head; None where it is the transposed token embedding."""
    if config.tie_embeddings:
        return None
    return nn.Dense(config.vocab_size, use_bias=config.head_bias)


def head_logits(
    lm_head: nn.Dense | None, embed: Embed | None, hidden: Float[Array, "B T D"]
) -> Float[Array, "B T V"]:
    """The logits of a head of its own, or of one tied to the token embedding."""
    if lm_head is not None:
        return lm_head(hidden)
    if embed is None:
        raise ValueError("embed: none given; a tied head is the token embedding")
    return embed.attend(hidden)


def apply(model: nn.Module, params: dict, *args: Any, **kwargs: Any) -> Array:
    """The model's output under these parameters; `method` names another method than the call."""
    return cast(Array, model.apply({"params": params}, *args, **kwargs))


def build_model(config: ModelConfig) -> Encoder | LanguageModel | EncoderDecoder:
    """The model of the config's arch."""
    match config.arch:
        case "encoder":
            return Encoder(config)
        case "decoder":
            return LanguageModel(config)
        case "encoder_decoder":
            return EncoderDecoder(config)
