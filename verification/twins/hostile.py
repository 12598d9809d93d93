"""Configs and inputs under which a mistake shows."""

from dataclasses import replace

import numpy as np

from transformer_spec.config import (
    FeedForward,
    LayerNorm,
    Learned,
    ModelConfig,
    PreNorm,
)

# Every axis of another prime size: a mistaken axis is a shape error or a large difference.
BATCH, LENGTH, KEYS = 2, 5, 7


def hostile_config(**changes) -> ModelConfig:
    """A small decoder of primes: 6 heads in groups of 2, head_dim != d_model / num_heads."""
    base = ModelConfig(
        arch="decoder",
        vocab_size=23,
        max_seq_len=13,
        d_model=13,
        d_ff=17,
        num_layers=2,
        num_heads=6,
        num_kv_heads=3,
        head_dim=5,
        position=Learned(),
        norm=LayerNorm(eps=1e-3),
        residual=PreNorm(),
        ffn=FeedForward(activation="gelu"),
        qkv_bias=True,
        out_bias=True,
    )
    return replace(base, **changes)


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def tokens(vocab_size: int, *shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(0, vocab_size, shape)


def ragged_mask(batch: int, length: int) -> np.ndarray:
    """Other padding in every row: on the left, on the right, on both sides."""
    mask = np.ones((batch, length), bool)
    for row in range(batch):
        left, right = [(1, 0), (0, 2), (1, 1)][row % 3]
        mask[row, :left] = False
        mask[row, length - right :] = False
    return mask


def random_mask(*shape: int, seed: int = 7) -> np.ndarray:
    """An arbitrary mask; the last query of the first row may attend to nothing."""
    mask = np.random.default_rng([seed, *shape]).random(shape) < 0.7
    mask[..., 0] = True
    mask[0, ..., -1, :] = False
    return mask
