"""The architecture of every preset in sizes that a test can afford, and inputs that fit it."""

from dataclasses import fields, replace

import numpy as np

from transformer_spec.config import (
    AlternatingWindow,
    Causal,
    Llama3Scaling,
    MixtureOfExperts,
    ModelConfig,
    NoScaling,
    PrefixLM,
    RelativeBias,
    Rotary,
    TwoChannelRotary,
    YarnScaling,
)
from transformer_spec.presets import PRESETS
from verification.twins.hostile import ragged_mask, random_mask, tokens

ROWS, TARGET, SOURCE = 3, 5, 7


def small_presets() -> dict[str, ModelConfig]:
    """Every preset's architecture once: those that differ in size alone are one."""
    found: dict[ModelConfig, str] = {}
    for name, preset in PRESETS.items():
        config = shrink(preset.model)
        found[config] = f"{found[config]}, {name}" if config in found else name
    return {names: config for config, names in found.items()}


def repeated_but_for_constants() -> set[str]:
    """Of the small presets, those that are an earlier one but for constants.

    Constants are an epsilon, theta, and a scaling of frequencies.
    """
    seen: set[ModelConfig] = set()
    found = set()
    for name, config in small_presets().items():
        bare = replace(config, norm=replace(config.norm, eps=1.0))
        if isinstance(config.position, Rotary):
            turned = replace(config.position, theta=2.0, scaling=NoScaling())
            bare = replace(bare, position=turned)
        if bare in seen:
            found.add(name)
        seen.add(bare)
    return found


def without_dropout(config: ModelConfig) -> ModelConfig:
    names = [f.name for f in fields(config) if f.name.endswith("_dropout")]
    return replace(config, **dict.fromkeys(names, 0.0))


def shrink(config: ModelConfig) -> ModelConfig:
    """The architecture of a preset in sizes a test can afford, dropout off."""
    return replace(
        without_dropout(config),
        vocab_size=23,
        max_seq_len=13,
        d_model=24,
        d_ff=29,
        num_layers=2 if isinstance(config.mask, AlternatingWindow) else 1,
        num_decoder_layers=config.num_decoder_layers and 2,
        num_heads=4,
        num_kv_heads=config.num_kv_heads and 2,
        head_dim=8 if isinstance(config.position, Rotary | TwoChannelRotary) else None,
        attention_scale=_small_scale(config),
        position=_small_position(config),
        mask=_small_mask(config),
        ffn=_small_ffn(config),
    )


def _small_scale(config: ModelConfig) -> float | None:
    """Scores that are not scaled stay so."""
    given = config.attention_scale
    return 24**-0.5 if given not in (None, 1.0) else given


def _small_mask(config: ModelConfig):
    """Windows shorter than the rows."""
    match config.mask:
        case Causal(window=None) | PrefixLM() as mask:
            return mask
        case mask:
            return replace(mask, window=3)


def _small_position(config: ModelConfig):
    """Distances beyond the last bucket, and texts beyond the length that was trained on."""
    match config.position:
        case RelativeBias():
            return RelativeBias(num_buckets=4, max_distance=3)
        case Rotary(scaling=Llama3Scaling() | YarnScaling() as scaling) as rotary:
            return replace(rotary, scaling=replace(scaling, original_max_seq_len=4))
        case position:
            return position


def _small_ffn(config: ModelConfig):
    match config.ffn:
        case MixtureOfExperts() as experts:
            return replace(experts, num_experts=3)
        case ffn:
            return ffn


def model_inputs(config: ModelConfig, masks: bool = True) -> dict:
    """The arguments of one call: ids, and with `masks` whatever else the model has a use for."""
    size = min(config.vocab_size, 23)
    if config.arch == "encoder_decoder":
        given = {"source": tokens(size, ROWS, SOURCE), "target": tokens(size, ROWS, TARGET)}
        extra = {"source_mask": ragged_mask(ROWS, SOURCE), "target_mask": ragged_mask(ROWS, TARGET)}
        return given | (extra if masks else {})
    given = {"tokens": tokens(size, ROWS, TARGET)}
    extra = {
        "token_mask": ragged_mask(ROWS, TARGET),
        "mask": random_mask(ROWS, config.num_heads, TARGET, TARGET),
    }
    if config.num_token_types:
        extra["token_types"] = tokens(config.num_token_types, ROWS, TARGET)
    if isinstance(config.mask, PrefixLM):
        extra["prefix_mask"] = np.arange(TARGET) < np.array([[2], [4], [3]])
    return given | (extra if masks else {})
