"""The models: stacks with a language head on them."""

from typing import NamedTuple, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from torch_reference.cache import KVCache
from torch_reference.embeddings import Embed
from torch_reference.feed_forward import ACTIVATIONS
from torch_reference.heads import head_logits, make_head
from torch_reference.norms import make_norm
from torch_reference.stacks import Decoder, Encoder, Mask, Positions, TokenMask
from transformer_spec.config import ModelConfig
from transformer_spec.parameters import has_heads


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
        prefix_mask: TokenMask = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits [B, T, V]; the arguments are those of `Decoder`."""
        hidden, _ = self.decoder(tokens, token_mask, mask, positions, prefix_mask)
        return head_logits(self.config, self.lm_head, self.decoder.embed, hidden)

    def extend(
        self,
        tokens: Int[Tensor, "..."],
        cache: KVCache,
        token_mask: TokenMask = None,
        prefix_mask: TokenMask = None,
    ) -> tuple[Float[Tensor, "B T V"], KVCache]:
        """Logits [B, T, V] of tokens that continue the cached text, and the cache with them.

        They equal those of the whole text in one call, however it is split; a prefix must be whole
        within one call.
        """
        hidden, extended = self.decoder(tokens, token_mask, prefix_mask=prefix_mask, cache=cache)
        logits = head_logits(self.config, self.lm_head, self.decoder.embed, hidden)
        return logits, cast(KVCache, extended)


class EncoderOutputs(NamedTuple):
    """What an encoder with heads returns; None for a head that the config does not have.

    hidden: [B, T, D]. logits: [B, T, V], of each token. pooled: [B, D], tanh(W h + b) of the first
    token. next_sentence: [B, 2], logits: the second segment is the next sentence (0), is not (1).
    """

    hidden: Float[Tensor, "B T D"]
    logits: Float[Tensor, "B T V"] | None
    pooled: Float[Tensor, "B D"] | None
    next_sentence: Float[Tensor, "B 2"] | None


class HeadedEncoder(nn.Module):
    """BERT: an encoder with some of a masked-token head, a pooler and a next-sentence head.

    The masked-token head is norm(f(W h + b)) before the output head, f and norm the config's.

    Source: Devlin et al. 2019, section 3.1, and their code (the transform).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = c = config
        self.encoder = Encoder(c)
        self.pooler = nn.Linear(c.d_model, c.d_model) if c.pooler else None
        self.sentence_head = nn.Linear(c.d_model, 2) if c.next_sentence else None
        self.lm_transform = nn.Linear(c.d_model, c.d_model) if c.masked_lm else None
        self.lm_norm = make_norm(c.norm, c.d_model) if c.masked_lm else None
        self.lm_head = make_head(c) if c.masked_lm else None

    def forward(
        self,
        tokens: Int[Tensor, "..."],
        token_mask: TokenMask = None,
        mask: Mask = None,
        positions: Positions = None,
        token_types: Positions = None,
    ) -> EncoderOutputs:
        """The outputs of all heads; the arguments are those of `Encoder`."""
        hidden = self.encoder(tokens, token_mask, mask, positions, token_types)
        pooled = None if self.pooler is None else self.pooler(hidden[:, 0]).tanh()
        sentence = None if self.sentence_head is None else self.sentence_head(pooled)
        return EncoderOutputs(hidden, self.masked_logits(hidden), pooled, sentence)

    def masked_logits(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"] | None:
        """The logits of the masked-token head, where there is one."""
        if self.lm_transform is None or self.lm_norm is None:
            return None
        transformed = ACTIVATIONS[self.config.ffn.activation](self.lm_transform(hidden))
        return head_logits(self.config, self.lm_head, self.encoder.embed, self.lm_norm(transformed))


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
        return self.encoder(source, source_mask, embed=self.embed, tokens_name="source")

    def decode(
        self,
        target: Int[Tensor, "..."],
        memory: Float[Tensor, "B S D"],
        source_mask: TokenMask = None,
        target_mask: TokenMask = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits given the encoder's output."""
        hidden, _ = self.decoder(
            target,
            target_mask,
            memory=memory,
            memory_token_mask=source_mask,
            embed=self.embed,
            tokens_name="target",
        )
        return self._logits(hidden)

    def extend(
        self,
        target: Int[Tensor, "..."],
        memory: Float[Tensor, "B S D"],
        cache: KVCache,
        source_mask: TokenMask = None,
        target_mask: TokenMask = None,
    ) -> tuple[Float[Tensor, "B T V"], KVCache]:
        """Logits of target tokens that continue the cached text, and the cache with them."""
        hidden, extended = self.decoder(
            target,
            target_mask,
            cache=cache,
            memory=memory,
            memory_token_mask=source_mask,
            embed=self.embed,
            tokens_name="target",
        )
        return self._logits(hidden), cast(KVCache, extended)

    def _logits(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        embed = self.decoder.embed if self.embed is None else self.embed
        return head_logits(self.config, self.lm_head, embed, hidden)


Model = Encoder | HeadedEncoder | LanguageModel | EncoderDecoder


def build_model(config: ModelConfig) -> Model:
    """The model of the config's arch."""
    match config.arch:
        case "encoder":
            return HeadedEncoder(config) if has_heads(config) else Encoder(config)
        case "decoder":
            return LanguageModel(config)
        case "encoder_decoder":
            return EncoderDecoder(config)
