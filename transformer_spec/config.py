"""ModelConfig: what a Transformer is, as flat sizes and tagged slots.

How a model is run (dtype, initialization, device, dropout on or off) is no part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformer_spec import fields
from transformer_spec.fields import check_types, field, require
from transformer_spec.rotary import LinearScaling, Llama3Scaling, NoScaling, YarnScaling
from transformer_spec.slots import (
    Activation,
    ALiBi,
    AlternatingWindow,
    Causal,
    DeepNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Learned,
    MixtureOfExperts,
    NoPosition,
    PostNorm,
    PrefixLM,
    PreNorm,
    RelativeBias,
    RMSNorm,
    Rotary,
    SandwichNorm,
    Sinusoidal,
    StdLayerNorm,
    TwoChannelRotary,
)

__all__ = [
    "ALiBi",
    "Activation",
    "AlternatingWindow",
    "Causal",
    "DeepNorm",
    "FeedForward",
    "GatedFeedForward",
    "LayerNorm",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "MixtureOfExperts",
    "ModelConfig",
    "NoPosition",
    "NoScaling",
    "PostNorm",
    "PreNorm",
    "PrefixLM",
    "RMSNorm",
    "RelativeBias",
    "Rotary",
    "SandwichNorm",
    "Sinusoidal",
    "StdLayerNorm",
    "TwoChannelRotary",
    "YarnScaling",
]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture of one model. Every error names the field and what it may be."""

    arch: Literal["encoder", "decoder", "encoder_decoder"] = field("which stacks the model has")
    vocab_size: int = field("number of token ids; sort and text data set it themselves")
    max_seq_len: int = field("longest sequence, in tokens; also the context of a decoder")
    d_model: int = field("width of the residual stream")
    d_ff: int = field("width of the feed-forward hidden layer")
    num_layers: int = field("blocks of the only stack, or of the encoder")
    num_decoder_layers: int | None = field("blocks of the decoder beside an encoder", None)
    num_heads: int = field("query heads")
    num_kv_heads: int | None = field("key/value heads: fewer is grouped, 1 is multi-query", None)
    head_dim: int | None = field("width of a head; none: d_model / num_heads", None)
    position: (
        Sinusoidal | Learned | Rotary | TwoChannelRotary | ALiBi | RelativeBias | NoPosition
    ) = field("how order enters")
    mask: Causal | AlternatingWindow | PrefixLM = field(
        "what a decoder's queries see; an encoder's see all", Causal()
    )
    norm: LayerNorm | RMSNorm | StdLayerNorm = field("normalization layer")
    residual: PreNorm | PostNorm | SandwichNorm | DeepNorm = field(
        "where the norm sits around a sublayer"
    )
    ffn: FeedForward | GatedFeedForward | MixtureOfExperts = field("feed-forward sublayer")
    qkv_bias: bool = field("bias in the q, k and v projections", False)
    out_bias: bool = field("bias in the attention output projection", False)
    ffn_bias: bool = field("bias in the feed-forward projections", True)
    head_bias: bool = field("bias in the output head", False)
    tie_embeddings: bool = field("output head = transposed token embedding", False)
    share_embeddings: bool = field("encoder and decoder share one token embedding", False)
    scale_embeddings: bool = field("multiply token embeddings by sqrt(d_model)", False)
    scale_head: bool = field("multiply a tied head's input by d_model**-0.5", False)
    embed_norm: bool = field("normalize the sum of the embeddings", False)
    num_token_types: int = field("segments an encoder tells apart; 0: none", 0)
    masked_lm: bool = field("an encoder's head that predicts masked tokens", False)
    pooler: bool = field("tanh layer on an encoder's first token", False)
    next_sentence: bool = field("two logits on the pooler: is it the next sentence?", False)
    qk_norm: bool = field("normalize each head's q and k, before any rotation", False)
    attention_scale: float | None = field("factor on the scores; none: head_dim**-0.5", None)
    score_cap: float | None = field("soft cap c on scaled scores: c tanh(s / c)", None)
    logit_cap: float | None = field("soft cap c on logits: c tanh(z / c)", None)
    embed_dropout: float = field("dropout on embeddings + positions", 0.0)
    attn_dropout: float = field("dropout on attention weights", 0.0)
    attn_out_dropout: float = field("dropout on the output of attention sublayers", 0.0)
    ffn_hidden_dropout: float = field("dropout on the feed-forward hidden layer", 0.0)
    ffn_out_dropout: float = field("dropout on the output of feed-forward sublayers", 0.0)

    def __post_init__(self):
        check_types(self)
        self._check_sizes()
        self._check_heads()
        self._check_stacks()
        self._check_slots()
        self._check_heads_on_top()
        for name in self.__dataclass_fields__:
            if name.endswith("_dropout"):
                fields.require_rate(name, getattr(self, name))

    def _check_sizes(self):
        for name in ("vocab_size", "max_seq_len", "d_model", "d_ff", "num_layers", "num_heads"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        wide_enough = self.d_model >= 2 or not isinstance(self.norm, StdLayerNorm)
        require(wide_enough, "d_model", self.d_model, "at least 2 under StdLayerNorm (n - 1)")

    def _check_heads(self):
        if self.head_dim is None:
            divides = self.d_model % self.num_heads == 0
            expected = f"divisible by num_heads {self.num_heads}, or head_dim given"
            require(divides, "d_model", self.d_model, expected)
        head = self.head_size
        require(head >= 1, "head_dim", self.head_dim, "at least 1")
        divides = self.kv_heads >= 1 and self.num_heads % self.kv_heads == 0
        expected = f"a divisor of num_heads {self.num_heads}"
        require(divides, "num_kv_heads", self.num_kv_heads, expected)
        wide_enough = head >= 2 or not (self.qk_norm and isinstance(self.norm, StdLayerNorm))
        require(wide_enough, "head_dim", head, "at least 2 under qk_norm and StdLayerNorm (n - 1)")
        for name in ("attention_scale", "score_cap"):
            if getattr(self, name) is not None:
                fields.require_positive(name, getattr(self, name))

    def _check_stacks(self):
        two = self.arch == "encoder_decoder"
        depth = self.num_decoder_layers
        expected = "at least 1 for an encoder_decoder" if two else f"none for a lone {self.arch}"
        usable = (depth is not None and depth >= 1) if two else depth is None
        require(usable, "num_decoder_layers", depth, expected)
        if self.share_embeddings:
            require(two, "share_embeddings", True, f"false for a lone {self.arch}")

    def _check_slots(self):
        head, rotary = self.head_size, self.position
        if isinstance(rotary, Rotary):
            width = self.rotary_size
            expected = (
                f"such that an even number of a head's {head} dimensions is rotated, 2 or more"
            )
            require(width >= 2 and width % 2 == 0, "position", rotary.fraction, expected)
        if isinstance(rotary, TwoChannelRotary):
            require(head % 4 == 0, "head_dim", head, "a multiple of 4 under TwoChannelRotary")
            prefixed = isinstance(self.mask, PrefixLM)
            require(prefixed, "mask", self.mask, "PrefixLM under TwoChannelRotary")
        if self.mask != Causal():
            require(self.arch != "encoder", "mask", self.mask, "Causal() for an encoder, unused")
        if isinstance(self.mask, PrefixLM):
            require(self.arch == "decoder", "mask", self.mask, "Causal in an encoder_decoder")
        if isinstance(self.ffn, MixtureOfExperts):
            require(not self.ffn_bias, "ffn_bias", True, "false under MixtureOfExperts")

    def _check_heads_on_top(self):
        headed = self.arch != "encoder" or self.masked_lm
        for name in ("tie_embeddings", "head_bias"):
            expected = "false: there is no output head"
            require(headed or not getattr(self, name), name, True, expected)
        if self.logit_cap is not None:
            fields.require_positive("logit_cap", self.logit_cap)
            require(headed, "logit_cap", self.logit_cap, "none: there is no output head")
        if self.scale_head:
            require(self.tie_embeddings, "scale_head", True, "false for a head that is not tied")
        require(self.num_token_types >= 0, "num_token_types", self.num_token_types, "at least 0")
        for name in ("num_token_types", "masked_lm", "pooler", "next_sentence"):
            value = getattr(self, name)
            require(not value or self.arch == "encoder", name, value, f"unset for a {self.arch}")
        if self.next_sentence:
            require(self.pooler, "next_sentence", True, "false without a pooler")

    @property
    def head_size(self) -> int:
        """H, the width of one head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def kv_heads(self) -> int:
        """K, the number of key/value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def decoder_depth(self) -> int:
        """The number of a decoder's blocks."""
        return self.num_decoder_layers or self.num_layers

    def layer_mask(self, layer: int) -> Causal | PrefixLM:
        """What the queries of one of a decoder's blocks see; blocks are numbered from 0."""
        match self.mask:
            case AlternatingWindow(window=window, full_every=every):
                return Causal() if (layer + 1) % every == 0 else Causal(window=window)
            case mask:
                return mask

    @property
    def rotary_size(self) -> int:
        """R, the number of a head's dimensions that are rotated."""
        return (
            int(self.head_size * self.position.fraction) if isinstance(self.position, Rotary) else 0
        )

    @property
    def interleaved(self) -> bool:
        """Whether neighbouring dimensions are rotated as pairs, instead of the two halves."""
        return isinstance(self.position, Rotary) and self.position.interleaved

    @property
    def has_final_norm(self) -> bool:
        """Whether the residual stream is left unnormalized by the last block."""
        return isinstance(self.residual, PreNorm | SandwichNorm)

    @property
    def score_scale(self) -> float:
        """The factor on q.k before the softmax."""
        return self.head_size**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def embedding_scale(self) -> float:
        """The factor on the token embeddings (section 3.4 of the 2017 paper)."""
        return self.d_model**0.5 if self.scale_embeddings else 1.0

    @property
    def head_scale(self) -> float:
        """The factor on the hidden states before a tied head (Raffel et al. 2020, their code)."""
        return self.d_model**-0.5 if self.scale_head else 1.0

    @property
    def norm_start(self) -> float:
        """The weight under which a norm layer only normalizes."""
        return 1 - self.norm.offset if isinstance(self.norm, RMSNorm) else 1.0

    def to_dict(self) -> dict[str, Any]:
        return fields.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        return fields.from_dict(cls, data)
