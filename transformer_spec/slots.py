"""What can fill the slots of a ModelConfig: one small dataclass for each kind of each part."""

from dataclasses import dataclass
from typing import Literal

from transformer_spec import fields
from transformer_spec.fields import Variant, check_types, require
from transformer_spec.rotary import NoScaling, Scaling

_UNSCALED = NoScaling()
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Variant):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""


@dataclass(frozen=True, kw_only=True)
class Learned(Variant):
    """A trained vector per position added to the embeddings (Gehring et al. 2017; GPT, BERT)."""


@dataclass(frozen=True, kw_only=True)
class Rotary(Variant):
    """Queries and keys rotated by angles that grow with position (Su et al. 2021).

    Args:
        theta: base of the wavelengths.
        fraction: the share of each head that is rotated, from its first dimension on.
        interleaved: pairs (0, 1), (2, 3), ... as in the paper and in GLM; else the two halves of
            the rotated part are paired, (0, R/2), (1, R/2 + 1), ..., as in LLaMA's weights.
        scaling: how frequencies are changed for texts longer than those trained on.
    """

    theta: float = 10000.0
    fraction: float = 1.0
    interleaved: bool = False
    scaling: Scaling = _UNSCALED

    def __post_init__(self):
        check_types(self)
        require(self.theta > 1, "theta", self.theta, "above 1")
        require(0 < self.fraction <= 1, "fraction", self.fraction, "in (0, 1]")


@dataclass(frozen=True, kw_only=True)
class TwoChannelRotary(Variant):
    """Half of each head rotated by one position, half by another (ChatGLM-6B; Du et al. 2022).

    The first is the token's place in the prefix, where the answer stays at the prefix's last; the
    second is 0 in the prefix and counts the answer's tokens from 1.
    """

    theta: float = 10000.0

    def __post_init__(self):
        check_types(self)
        require(self.theta > 1, "theta", self.theta, "above 1")


@dataclass(frozen=True, kw_only=True)
class ALiBi(Variant):
    """A penalty on scores that grows with distance, with a slope per head (Press et al. 2022)."""


@dataclass(frozen=True, kw_only=True)
class RelativeBias(Variant):
    """A trained bias on scores per head and bucket of distance (Raffel et al. 2020, T5).

    Distances up to half of the buckets have one each, longer ones share them logarithmically up to
    `max_distance`. An encoder's buckets are split between the two directions.
    """

    num_buckets: int = 32
    max_distance: int = 128

    def __post_init__(self):
        check_types(self)
        even = self.num_buckets >= 4 and self.num_buckets % 4 == 0
        require(even, "num_buckets", self.num_buckets, "a multiple of 4")
        expected = f"above half of num_buckets {self.num_buckets}"
        require(
            self.max_distance > self.num_buckets // 2, "max_distance", self.max_distance, expected
        )


@dataclass(frozen=True, kw_only=True)
class NoPosition(Variant):
    """Nothing: order is visible through the causal mask alone."""


@dataclass(frozen=True, kw_only=True)
class Causal(Variant):
    """A query sees no later token; with a window W, only the last W tokens, itself included."""

    window: int | None = None

    def __post_init__(self):
        check_types(self)
        usable = self.window is None or self.window >= 1
        require(usable, "window", self.window, "at least 1, or none")


@dataclass(frozen=True, kw_only=True)
class AlternatingWindow(Variant):
    """`Causal` with a window W; every n-th layer, n = `full_every`, has none (Gemma 2: n = 2)."""

    window: int
    full_every: int = 2

    def __post_init__(self):
        check_types(self)
        require(self.window >= 1, "window", self.window, "at least 1")
        require(self.full_every >= 2, "full_every", self.full_every, "at least 2")


@dataclass(frozen=True, kw_only=True)
class PrefixLM(Variant):
    """Every query sees the whole prefix, and of the rest no later token (ChatGLM; T5 too)."""


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
    """Root mean square alone, no mean, no bias (Zhang and Sennrich 2019).

    `offset` is added to the weight: 1 where a checkpoint holds the weight's distance from 1, as
    Gemma's do.
    """

    offset: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        require(self.offset in (0.0, 1.0), "offset", self.offset, "0 or 1")


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
class SandwichNorm(Variant):
    """x + norm'(f(norm(x))), and a final norm (Ding et al. 2021, section 2.3; GLM-4-0414)."""


@dataclass(frozen=True, kw_only=True)
class DeepNorm(Variant):
    """norm(alpha x + f(x)), no final norm (Wang et al. 2022; ChatGLM-6B, alpha = sqrt(2 L))."""

    alpha: float

    def __post_init__(self):
        check_types(self)
        fields.require_positive("alpha", self.alpha)


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
class MixtureOfExperts(Variant):
    """The sum of `top_k` of `num_experts` gated feed-forwards, weighted by a router (Mixtral).

    `normalize`: the weights of the chosen experts sum to 1 (Jiang et al. 2024); else they are the
    router's probabilities among all experts (Fedus et al. 2022).
    """

    num_experts: int
    top_k: int
    activation: Activation = "silu"
    normalize: bool = True

    def __post_init__(self):
        check_types(self)
        require(self.num_experts >= 2, "num_experts", self.num_experts, "at least 2")
        usable = 1 <= self.top_k <= self.num_experts
        require(usable, "top_k", self.top_k, f"in [1, num_experts {self.num_experts}]")
