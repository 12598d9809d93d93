"""The models: stacks with a language head on them."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from torch_reference.embeddings import Embed, check_inputs
from torch_reference.stacks import Decoder, Encoder, Mask, Positions, TokenMask
from transformer_spec.config import ModelConfig


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
        return head_logits(self.lm_head, self.decoder.embed, hidden)


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
        embed = self.decoder.embed if self.embed is None else self.embed
        return head_logits(self.lm_head, embed, hidden)


def make_head(config: ModelConfig) -> nn.Linear | None:
    """The output head; None where it is the transposed token embedding."""
    if config.tie_embeddings:
        return None
    return nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)


def head_logits(
    lm_head: nn.Linear | None, embed: Embed | None, hidden: Float[Tensor, "B T D"]
) -> Float[Tensor, "B T V"]:
    """The logits of a head of its own, or of one tied to the token embedding."""
    if lm_head is not None:
        return lm_head(hidden)
    if embed is None:
        raise ValueError("embed: none given; a tied head is the token embedding")
    return embed.attend(hidden)


def build_model(config: ModelConfig) -> Encoder | LanguageModel | EncoderDecoder:
    """The model of the config's arch."""
    match config.arch:
        case "encoder":
            return Encoder(config)
        case "decoder":
            return LanguageModel(config)
        case "encoder_decoder":
            return EncoderDecoder(config)
