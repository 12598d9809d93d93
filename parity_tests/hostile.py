"""Weights and inputs under which a mistake shows.

Weights of unit scale: at the usual std of 0.02 every softmax is uniform and faults in the scores
vanish. Norm scales and biases are random: at 1 and 0 a missing or doubled norm, or a bias that was
never copied, cannot be seen.
"""

from dataclasses import replace

import numpy as np

from transformer_spec.config import (
    FeedForward,
    LayerNorm,
    Learned,
    ModelConfig,
    PreNorm,
)
from transformer_spec.parameters import is_bias, is_embedding, is_norm

# Every axis of another prime size: a mistaken axis is a shape error or a large difference.
BATCH, LENGTH, KEYS = 2, 5, 7


def hostile_parameters(
    shapes: dict[str, tuple[int, ...]], seed: int, embedding_scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Parameters by name. Token embeddings are of unit scale after the model has scaled them.

    Larger ones saturate a post-norm model's first softmax: the gradients of q and k, differences
    w (g - sum(w g)) at weights w of 0 and 1, are then rounding noise, not a comparison.
    """
    rng = np.random.default_rng([seed, 11])
    named = {name: _draw(rng, name, shape) for name, shape in shapes.items()}
    tables = [name for name in named if f".{name}".endswith(".embed.weight")]
    return named | {name: named[name] / embedding_scale for name in tables}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    qualified = name if "." in name else f"norm.{name}"  # a norm by itself has bare leaves
    if is_bias(qualified):
        return rng.normal(0.0, 0.5, shape)
    if is_norm(qualified):
        return rng.normal(1.0, 0.5, shape)
    return rng.normal(size=shape) * (1.0 if is_embedding(qualified) else shape[1] ** -0.5)


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
