"""Rotary positions: the frequencies of a rotation, how they are scaled, and its exact tables."""

from dataclasses import dataclass

import numpy as np

from transformer_spec import fields
from transformer_spec.fields import Variant, check_types, require


@dataclass(frozen=True, kw_only=True)
class NoScaling(Variant):
    """Frequencies as they are."""


@dataclass(frozen=True, kw_only=True)
class LinearScaling(Variant):
    """Every frequency divided by `factor`: positions interpolated (Chen et al. 2023)."""

    factor: float

    def __post_init__(self):
        check_types(self)
        fields.require_positive("factor", self.factor)


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling(Variant):
    """Long wavelengths divided by `factor`, short ones kept, those between blended (LLaMA 3.1)."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_seq_len: int = 8192

    def __post_init__(self):
        check_types(self)
        fields.require_positive("factor", self.factor)
        fields.require_positive("low_freq_factor", self.low_freq_factor)
        above = self.high_freq_factor > self.low_freq_factor
        expected = f"above low_freq_factor {self.low_freq_factor}"
        require(above, "high_freq_factor", self.high_freq_factor, expected)
        least = self.original_max_seq_len >= 1
        require(least, "original_max_seq_len", self.original_max_seq_len, "at least 1")


@dataclass(frozen=True, kw_only=True)
class YarnScaling(Variant):
    """Interpolation by parts and warmer scores (Peng et al. 2023, section 3.4).

    Frequencies of more than `beta_fast` turns over the original length stay, those of less than
    `beta_slow` turns are divided by `factor`, with a ramp between. Queries and keys are multiplied
    by `attention_factor`; none: 0.1 ln(factor) + 1.
    """

    factor: float
    original_max_seq_len: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self):
        check_types(self)
        require(self.factor >= 1, "factor", self.factor, "at least 1")
        fields.require_positive("beta_slow", self.beta_slow)
        above = self.beta_fast > self.beta_slow
        require(above, "beta_fast", self.beta_fast, f"above beta_slow {self.beta_slow}")
        least = self.original_max_seq_len >= 1
        require(least, "original_max_seq_len", self.original_max_seq_len, "at least 1")
        if self.attention_factor is not None:
            fields.require_positive("attention_factor", self.attention_factor)


Scaling = NoScaling | LinearScaling | Llama3Scaling | YarnScaling
# Positions are split in blocks of this many: cos and sin of a sum come from those of its parts.
BLOCK = 256


def frequencies(width: int, theta: float, scaling: Scaling) -> np.ndarray:
    """f_i = theta**(-2i / width), scaled: the angle per position of each of width / 2 pairs.

    Source: Su et al. 2021, section 3.2.2; for the scalings see their classes.
    """
    plain = theta ** -(np.arange(0, width, 2) / width)
    match scaling:
        case NoScaling():
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case Llama3Scaling():
            return _llama3(plain, scaling)
        case YarnScaling():
            return _yarn(plain, width, theta, scaling)


def _llama3(plain: np.ndarray, scaling: Llama3Scaling) -> np.ndarray:
    """Kept where a pair makes more than high_freq_factor turns over the original length."""
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_max_seq_len * plain / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return plain * (kept + (1 - kept) / scaling.factor)


def _yarn(plain: np.ndarray, width: int, theta: float, scaling: YarnScaling) -> np.ndarray:
    """A ramp over the pairs, between whole numbers of them as the authors' code has it."""

    def pair_with_turns(times: float) -> float:
        period = scaling.original_max_seq_len / (2 * np.pi * times)
        return width * np.log(period) / (2 * np.log(theta))

    first = max(np.floor(pair_with_turns(scaling.beta_fast)), 0)
    last = min(np.ceil(pair_with_turns(scaling.beta_slow)), width - 1)
    # The width of the ramp is never 0.
    ramp = (np.arange(width // 2) - first) / ((last - first) or 1e-3)
    kept = 1 - np.clip(ramp, 0.0, 1.0)
    return plain * (kept + (1 - kept) / scaling.factor)


def amplitude(scaling: Scaling) -> float:
    """The factor on rotated queries and keys: YaRN's, else 1."""
    if not isinstance(scaling, YarnScaling):
        return 1.0
    given = scaling.attention_factor
    return 0.1 * float(np.log(scaling.factor)) + 1 if given is None else given


def rotation_tables(pair_frequencies: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of f t at the multiples t of BLOCK below `length`, and at t below BLOCK.

    A position is a sum of one of each, and the sum's cos and sin come from those of its parts:
    exact to rounding at any position and in any dtype, where the angle itself has an error of
    4e-3 in float32 near position 100,000. The tables, [2, rows, P] in float64, stay small.
    """
    starts = np.arange(0, length, BLOCK)[:, None] * pair_frequencies
    within = np.arange(min(BLOCK, length))[:, None] * pair_frequencies
    return np.stack([np.cos(starts), np.sin(starts)]), np.stack([np.cos(within), np.sin(within)])
