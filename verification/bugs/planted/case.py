"""One pair on which planted bugs show, and what its inputs are made of."""

from dataclasses import dataclass

import numpy as np

from transformer_spec.config import ModelConfig


@dataclass(frozen=True)
class Case:
    """One model and the keyword arguments of its call.

    Args:
        chunks: how many tokens each call reads, of a model with a key/value cache.
    """

    config: ModelConfig
    inputs: dict[str, np.ndarray]
    chunks: tuple[int, ...] = ()


def ids(vocab_size: int, *shape: int) -> np.ndarray:
    """Random ids, a third of them 0: the row that a padding index would freeze."""
    rng = np.random.default_rng([19, *shape])
    return np.where(rng.random(shape) < 1 / 3, 0, rng.integers(0, vocab_size, shape))


def padded(length: int, *ends: tuple[int, int]) -> np.ndarray:
    """A token mask with so much padding on the left and on the right of each row."""
    at = np.arange(length)
    return np.array([(at >= left) & (at < length - right) for left, right in ends])


def packed(length: int, *starts: list[int]) -> dict[str, np.ndarray]:
    """The mask and the positions of rows whose documents begin at 0 and at `starts`."""
    at = np.arange(length)
    begins = np.array([[max(s for s in (0, *row) if s <= t) for t in at] for row in starts])
    same = begins[:, :, None] == begins[:, None, :]
    return {"mask": same[:, None], "positions": at - begins}
