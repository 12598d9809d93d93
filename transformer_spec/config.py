"""ModelConfig: what a Transformer is, as flat sizes and tagged slots.

How a model is run (dtype, initialization, device, dropout on or off) is no part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformer_spec import fields
from transformer_spec.fields import Variant, check_types, field, require

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Variant):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""


@dataclass(frozen=True, kw_only=True)
class Learned(Variant):
    """A trained vector per position added to the embeddings (Gehring et al. 2017; GPT, BERT)."""


@dataclass(frozen=True, kw_only=True)
class NoPosition(Variant):
    """Nothing: order is visible through the causal mask alone."""


@dataclass(frozen=True, kw_only=True)
class _Norm(Variant):
    eps: float = 1e-5

    def __post_init__(self):
        check_types(self)
        fields.require_positive("eps", self.eps)


@dataclass(frozen=True, kw_only=True)
class LayerNorm(_Norm):
    """Mean and variance over the features, eps inside the root (Ba et al. 2016)."""


@dataclass(frozen=True, kw_only=True)
class RMSNorm(_Norm):
    """Root mean square alone, no mean, no bias (Zhang and Sennrich 2019)."""


@dataclass(frozen=True, kw_only=True)
class StdLayerNorm(_Norm):
    """The hand-written variant of many tutorials: unbiased std, eps added outside the root."""


@dataclass(frozen=True, kw_only=True)
class PreNorm(Variant):
    """x + f(norm(x)), and a final norm after the last block (GPT-2)."""


@dataclass(frozen=True, kw_only=True)
class PostNorm(Variant):
    """norm(x + f(x)), no final norm (the 2017 paper, BERT)."""


@dataclass(frozen=True, kw_only=True)
class FeedForward(Variant):
    """W2 f(W1 x) (the 2017 paper, section 3.3)."""

    activation: Activation = "relu"

    def __post_init__(self):
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class GatedFeedForward(Variant):
    """W2 (f(Wg x) * W1 x): sigmoid is GLU, gelu GEGLU, silu SwiGLU (Shazeer 2020)."""

    activation: Activation = "silu"

    def __post_init__(self):
        check_types(self)


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
    position: Sinusoidal | Learned | NoPosition = field("how order enters")
    norm: LayerNorm | RMSNorm | StdLayerNorm = field("normalization layer")
    residual: PreNorm | PostNorm = field("where the norm sits around a sublayer")
    ffn: FeedForward | GatedFeedForward = field("feed-forward sublayer")
    qkv_bias: bool = field("bias in the q, k and v projections", False)
    out_bias: bool = field("bias in the attention output projection", False)
    ffn_bias: bool = field("bias in the feed-forward projections", True)
    head_bias: bool = field("bias in an untied output head", False)
    tie_embeddings: bool = field("output head = transposed token embedding", False)
    share_embeddings: bool = field("encoder and decoder share one token embedding", False)
    scale_embeddings: bool = field("multiply token embeddings by sqrt(d_model)", False)
    attention_scale: float | None = field("factor on the scores; none: head_dim**-0.5", None)
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
        require(self.head_size >= 1, "head_dim", self.head_dim, "at least 1")
        divides = self.kv_heads >= 1 and self.num_heads % self.kv_heads == 0
        expected = f"a divisor of num_heads {self.num_heads}"
        require(divides, "num_kv_heads", self.num_kv_heads, expected)
        if self.attention_scale is not None:
            fields.require_positive("attention_scale", self.attention_scale)

    def _check_stacks(self):
        two = self.arch == "encoder_decoder"
        depth = self.num_decoder_layers
        expected = "at least 1 for an encoder_decoder" if two else f"none for a lone {self.arch}"
        usable = (depth is not None and depth >= 1) if two else depth is None
        require(usable, "num_decoder_layers", depth, expected)
        if self.share_embeddings:
            require(two, "share_embeddings", True, f"false for a lone {self.arch}")
        if self.head_bias:
            headed = self.arch != "encoder" and not self.tie_embeddings
            require(headed, "head_bias", True, "false where there is no output head of its own")
        if self.tie_embeddings:
            expected = "false: an encoder has no output head"
            require(self.arch != "encoder", "tie_embeddings", True, expected)

    @property
    def head_size(self) -> int:
        """H, the width of one head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def kv_heads(self) -> int:
        """K, the number of key/value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def score_scale(self) -> float:
        """The factor on q.k before the softmax."""
        return self.head_size**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def embedding_scale(self) -> float:
        """The factor on the token embeddings (section 3.4 of the 2017 paper)."""
        return self.d_model**0.5 if self.scale_embeddings else 1.0

    def to_dict(self) -> dict[str, Any]:
        return fields.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        return fields.from_dict(cls, data)
