"""Every component that is measured in low precision, by name."""

from typing import get_args

from transformer_spec.config import (
    Activation,
    ALiBi,
    DeepNorm,
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    PostNorm,
    PreNorm,
    RelativeBias,
    Rotary,
    SandwichNorm,
    TwoChannelRotary,
    YarnScaling,
)
from verification.low_precision import Component
from verification.twins.builders import (
    S,
    attention,
    block,
    embedding,
    feed_forward,
    loss,
    norm,
    positioned,
    preset,
    tied_head,
)
from verification.twins.small import small_presets

NORMS = ("LayerNorm", "RMSNorm", "StdLayerNorm")
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
# A float32 angle is off by 4e-3 there.
FAR, NEAR = 100_003, 13
_TURNED = {
    "rotary": (Rotary(), 6),
    "rotary, neighbours, a part": (Rotary(fraction=0.7, interleaved=True), 6),
    "rotary, YaRN": (Rotary(scaling=YarnScaling(factor=4.0, original_max_seq_len=8)), 6),
    "rotary, two channels": (TwoChannelRotary(), 8),
}
_RESIDUALS = {
    "pre-norm": PreNorm(),
    "post-norm": PostNorm(),
    "sandwich norm": SandwichNorm(),
    "deep norm": DeepNorm(alpha=1.7),
}
_EXPERTS = {
    "2 of 5": MixtureOfExperts(num_experts=5, top_k=2),
    "1 of 3, not normalized": MixtureOfExperts(num_experts=3, top_k=1, normalize=False),
}

COMPONENTS: dict[str, Component] = (
    {name: norm(name) for name in NORMS}
    | {
        "RMSNorm, offset": norm("RMSNorm", offset=1.0),
        "attention": attention(),
        "attention, cross": attention(S),
        "attention, grouped": attention(num_kv_heads=3),
        "attention, one key head, cross": attention(S, num_kv_heads=1),
        "attention, window": attention(window=3),
    }
    | {f"attention, {n}": positioned(slot, width, FAR) for n, (slot, width) in _TURNED.items()}
    | {
        "attention, ALiBi": positioned(ALiBi(), 5, NEAR),
        "attention, relative bias": positioned(
            RelativeBias(num_buckets=8, max_distance=7), 5, NEAR
        ),
    }
    | {f"feed-forward, {a}": feed_forward(FeedForward(activation=a)) for a in ACTIVATIONS}
    | {
        f"feed-forward, gated {a}": feed_forward(GatedFeedForward(activation=a))
        for a in ACTIVATIONS
    }
    | {f"experts, {name}": feed_forward(slot) for name, slot in _EXPERTS.items()}
    | {f"block, {name}": block(False, residual) for name, residual in _RESIDUALS.items()}
    | {f"block, {n}, cross": block(True, _RESIDUALS[n]) for n in ("pre-norm", "post-norm")}
    | {
        "embedding": embedding(False),
        "embedding, scaled": embedding(True),
        "tied head": tied_head(False),
        "tied head, scaled": tied_head(True),
        "loss": loss(),
    }
    | {f"preset {name}": preset(config) for name, config in small_presets().items()}
)
