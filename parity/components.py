"""Every component as a pair of twins on hostile numbers, and the roundings its outputs take."""

from dataclasses import replace
from functools import partial
from typing import get_args

import flax.linen as nn
import torch

import flax_transformer
import flax_transformer.attention as flax_attention
import flax_transformer.blocks as flax_blocks
import flax_transformer.embeddings as flax_embeddings
import flax_transformer.losses as flax_losses
import flax_transformer.moe as flax_moe
import flax_transformer.norms as flax_norms
import torch_reference
import torch_reference.attention as torch_attention
import torch_reference.blocks as torch_blocks
import torch_reference.embeddings as torch_embeddings
import torch_reference.losses as torch_losses
import torch_reference.moe as torch_moe
import torch_reference.norms as torch_norms
from parity import precision
from parity.hostile import hostile_config, normal, ragged_mask, random_mask, tokens
from parity.precision import Component
from parity.twins import Pair
from parity.weights import off_the_kink
from transformer_spec.config import (
    Activation,
    FeedForward,
    GatedFeedForward,
    ModelConfig,
    NoPosition,
    PostNorm,
    PreNorm,
)
from transformer_spec.presets import PRESETS

NORMS = ("LayerNorm", "RMSNorm", "StdLayerNorm")
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
ROWS, TARGET, SOURCE = 3, 5, 7
B, T, S, D, V = 2, 5, 7, 13, 23


def small_presets() -> dict[str, ModelConfig]:
    """Every preset's architecture once: those that differ in size alone are one."""
    found: dict[ModelConfig, str] = {}
    for name, preset in PRESETS.items():
        config = small(preset.model)
        found[config] = f"{found[config]}, {name}" if config in found else name
    return {names: config for config, names in found.items()}


def small(config: ModelConfig) -> ModelConfig:
    """The architecture of a preset in sizes a test can afford; what it is made of stays."""
    sizes = {"vocab_size": 23, "max_seq_len": 13, "d_model": 24, "d_ff": 29}
    depth = {"num_layers": 1}
    if config.num_decoder_layers is not None:
        depth["num_decoder_layers"] = 2
    scale = None if config.attention_scale is None else 24**-0.5
    heads = {"num_heads": 4, "num_kv_heads": config.num_kv_heads and 2}
    return replace(config, **sizes, **depth, **heads, attention_scale=scale)


def model_inputs(config: ModelConfig, masks: bool = True) -> dict:
    size = min(config.vocab_size, 23)
    if config.arch == "encoder_decoder":
        given = {"source": tokens(size, ROWS, SOURCE), "target": tokens(size, ROWS, TARGET)}
        extra = {"source_mask": ragged_mask(ROWS, SOURCE), "target_mask": ragged_mask(ROWS, TARGET)}
    else:
        given = {"tokens": tokens(size, ROWS, TARGET)}
        extra = {
            "token_mask": ragged_mask(ROWS, TARGET),
            "mask": random_mask(ROWS, config.num_heads, TARGET, TARGET),
        }
    return given | (extra if masks else {})


def norm(name: str, width: int = D, shift: float = 0.0) -> Component:
    def build(dtype: str) -> Pair:
        ours, theirs = (getattr(m, name)(width, 1e-5) for m in (flax_norms, torch_norms))
        return Pair(ours, theirs, {"x": normal(B, T, width) + shift}, dtype=dtype)

    return Component(build, precision.norm(width), B * T)


def attention(keys: int | None = None, **changes) -> Component:
    """The last query of the first row may attend to nothing; `keys` of a memory, or self."""
    config = hostile_config(**changes)
    inputs = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, keys or T)}
    if keys:
        inputs["memory"] = normal(B, keys, D)

    def build(dtype: str) -> Pair:
        twins = flax_attention.Attention(config), torch_attention.Attention(config)
        return Pair(*twins, inputs, dtype=dtype)

    return Component(build, precision.attention(config, keys or T), B * max(T, keys or 0))


def feed_forward(slot: FeedForward | GatedFeedForward) -> Component:
    config = hostile_config(ffn=slot)

    def build(dtype: str) -> Pair:
        twins = flax_moe.make_ffn(config), torch_moe.make_ffn(config)
        adjust = partial(off_the_kink, config)
        return Pair(*twins, {"x": normal(B, T, D)}, dtype=dtype, adjust=adjust)

    return Component(build, precision.feed_forward(config), B * T)


def block(cross: bool, residual: PreNorm | PostNorm) -> Component:
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2, residual=residual)
    inputs = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, T)}
    if cross:
        inputs |= {"memory": normal(B, S, D), "memory_mask": random_mask(B, 6, T, S)}

    def build(dtype: str) -> Pair:
        twins = flax_blocks.Block(config, cross), torch_blocks.Block(config, cross)
        return Pair(*twins, inputs, dtype=dtype)

    return Component(build, precision.block(config, cross, S), B * S)


def embedding(scaled: bool) -> Component:
    config = hostile_config(scale_embeddings=scaled, position=NoPosition())

    def build(dtype: str) -> Pair:
        twins = flax_embeddings.Embed(config), torch_embeddings.Embed(config)
        return Pair(*twins, {"tokens": tokens(V, B, T)}, dtype=dtype)

    return Component(build, precision.embedding(config), B * T)


def tied_head() -> Component:
    config = hostile_config(tie_embeddings=True)

    def build(dtype: str) -> Pair:
        twins = flax_embeddings.Embed(config), torch_embeddings.Embed(config)
        return Pair(*twins, {"hidden": normal(B, T, D)}, method="attend", dtype=dtype)

    return Component(build, precision.dense(D), B * T)


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

    return Component(build, precision.loss(S, B * T), B * T)


def preset(config: ModelConfig) -> Component:
    def build(dtype: str) -> Pair:
        twins = flax_transformer.build_model(config), torch_reference.build_model(config)
        adjust = partial(off_the_kink, config)
        return Pair(*twins, model_inputs(config), dtype=dtype, adjust=adjust)

    return Component(build, precision.model(config, SOURCE), ROWS * SOURCE)


COMPONENTS: dict[str, Component] = (
    {name: norm(name) for name in NORMS}
    | {
        "attention": attention(num_kv_heads=None),
        "attention, cross": attention(S, num_kv_heads=None),
        "attention, grouped": attention(num_kv_heads=3),
        "attention, one key head, cross": attention(S, num_kv_heads=1),
    }
    | {f"feed-forward, {a}": feed_forward(FeedForward(activation=a)) for a in ACTIVATIONS}
    | {
        f"feed-forward, gated {a}": feed_forward(GatedFeedForward(activation=a))
        for a in ACTIVATIONS
    }
    | {
        "block, pre-norm": block(False, PreNorm()),
        "block, post-norm": block(False, PostNorm()),
        "block, pre-norm, cross": block(True, PreNorm()),
        "block, post-norm, cross": block(True, PostNorm()),
        "embedding": embedding(False),
        "embedding, scaled": embedding(True),
        "tied head": tied_head(),
        "loss": loss(),
    }
    | {f"preset {name}": preset(config) for name, config in small_presets().items()}
)
