"""Every component that is measured in low precision: twins, hostile numbers, roundings."""

from typing import get_args

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import torch

import flax_transformer
import flax_transformer.attention as flax_attention
import flax_transformer.blocks as flax_blocks
import flax_transformer.embeddings as flax_embeddings
import flax_transformer.losses as flax_losses
import flax_transformer.masks as flax_masks
import flax_transformer.moe as flax_moe
import flax_transformer.norms as flax_norms
import torch_reference
import torch_reference.attention as torch_attention
import torch_reference.blocks as torch_blocks
import torch_reference.embeddings as torch_embeddings
import torch_reference.losses as torch_losses
import torch_reference.moe as torch_moe
import torch_reference.norms as torch_norms
from transformer_spec.config import (
    Activation,
    ALiBi,
    Causal,
    DeepNorm,
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    ModelConfig,
    NoPosition,
    PostNorm,
    PrefixLM,
    PreNorm,
    RelativeBias,
    Rotary,
    SandwichNorm,
    TwoChannelRotary,
    YarnScaling,
)
from verification.low_precision import Component
from verification.twins import roundings
from verification.twins.attention_at_positions import (
    FlaxAttentionAtPositions,
    TorchAttentionAtPositions,
)
from verification.twins.hostile import hostile_config, normal, ragged_mask, random_mask, tokens
from verification.twins.pair import Pair
from verification.twins.router_margins import away_from_jumps
from verification.twins.small_presets import ROWS, SOURCE, TARGET, model_inputs, small_presets

B, T, S, D, V = 2, 5, 7, 13, 23


def norm(name: str, width: int = D, shift: float = 0.0, **offset: float) -> Component:
    def build(dtype: str) -> Pair:
        ours, theirs = (getattr(m, name)(width, 1e-5, **offset) for m in (flax_norms, torch_norms))
        return Pair(ours, theirs, {"x": normal(B, T, width) + shift}, dtype=dtype)

    return Component(build, roundings.norm(width, bool(offset)), B * T)


def attention(
    keys: int | None = None, window: int | None = None, num_kv_heads: int | None = None
) -> Component:
    """The last query of the first row may attend to nothing; `keys` of a memory, or self."""
    config = hostile_config(num_kv_heads=num_kv_heads)
    mask = random_mask(B, 1, T, keys or T)
    if window is not None:
        mask = mask & np.asarray(flax_masks.causal_mask(jnp.arange(T), jnp.arange(T), window))
    inputs = {"x": normal(B, T, D), "mask": mask}
    if keys:
        inputs["memory"] = normal(B, keys, D)

    def build(dtype: str) -> Pair:
        twins = flax_attention.Attention(config), torch_attention.Attention(config)
        return Pair(*twins, inputs, dtype=dtype)

    return Component(build, roundings.attention(config, keys or T), B * max(T, keys or 0))


def positioned(
    position: Rotary | TwoChannelRotary | ALiBi | RelativeBias, head_dim: int, reach: int
) -> Component:
    """Attention at random positions below `reach`."""
    two = isinstance(position, TwoChannelRotary)
    mask = PrefixLM() if two else Causal()
    config = hostile_config(position=position, head_dim=head_dim, max_seq_len=reach, mask=mask)
    inputs = {
        "x": normal(B, T, D),
        "positions": tokens(reach, B, T, 1 + two),
        "mask": random_mask(B, 1, T, T),
    }

    def build(dtype: str) -> Pair:
        return Pair(
            FlaxAttentionAtPositions(config), TorchAttentionAtPositions(config), inputs, dtype=dtype
        )

    return Component(build, roundings.attention(config, T), B * T)


def feed_forward(slot: FeedForward | GatedFeedForward | MixtureOfExperts) -> Component:
    config = hostile_config(ffn=slot, ffn_bias=not isinstance(slot, MixtureOfExperts))
    inputs = {"x": normal(B, T, D)}

    def build(dtype: str) -> Pair:
        twins = flax_moe.make_ffn(config), torch_moe.make_ffn(config)
        adjust = away_from_jumps(config, twins[1], inputs, dtype, roundings.dense(D))
        return Pair(*twins, inputs, dtype=dtype, adjust=adjust)

    return Component(build, roundings.feed_forward(config), B * T)


def block(cross: bool, residual: PreNorm | PostNorm | SandwichNorm | DeepNorm) -> Component:
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2, residual=residual)
    inputs = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, T)}
    if cross:
        inputs |= {"memory": normal(B, S, D), "memory_mask": random_mask(B, 6, T, S)}

    def build(dtype: str) -> Pair:
        twins = flax_blocks.Block(config, cross), torch_blocks.Block(config, cross)
        return Pair(*twins, inputs, dtype=dtype)

    return Component(build, roundings.block(config, cross, S), B * S)


def embedding(scaled: bool) -> Component:
    config = hostile_config(scale_embeddings=scaled, position=NoPosition())

    def build(dtype: str) -> Pair:
        twins = flax_embeddings.Embed(config), torch_embeddings.Embed(config)
        return Pair(*twins, {"tokens": tokens(V, B, T)}, dtype=dtype)

    return Component(build, roundings.embedding(config), B * T)


def tied_head(scaled: bool) -> Component:
    config = hostile_config(tie_embeddings=True, scale_head=scaled)

    def build(dtype: str) -> Pair:
        twins = flax_embeddings.Embed(config), torch_embeddings.Embed(config)
        return Pair(*twins, {"hidden": normal(B, T, D)}, method="attend", dtype=dtype)

    return Component(build, roundings.head(config), B * T)


class FlaxLoss(nn.Module):
    def __call__(self, logits, labels, label_mask):
        return flax_losses.cross_entropy(logits, labels, label_mask, 0.1)


class TorchLoss(torch.nn.Module):
    def forward(self, logits, labels, label_mask):
        return torch_losses.cross_entropy(logits, labels, label_mask, 0.1)


def loss() -> Component:
    inputs = {"labels": tokens(S, B, T), "label_mask": ragged_mask(B, T)}

    def build(dtype: str) -> Pair:
        logits = {"logits": 3 * normal(B, T, S)}
        return Pair(FlaxLoss(), TorchLoss(), logits | inputs, dtype=dtype)

    return Component(build, roundings.loss(S, B * T), B * T)


def preset(config: ModelConfig) -> Component:
    inputs = model_inputs(config)

    def build(dtype: str) -> Pair:
        twins = flax_transformer.build_model(config), torch_reference.build_model(config)
        adjust = away_from_jumps(config, twins[1], inputs, dtype, roundings.router(config, TARGET))
        return Pair(*twins, inputs, dtype=dtype, adjust=adjust)

    return Component(build, roundings.model(config, SOURCE), ROWS * SOURCE)


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
