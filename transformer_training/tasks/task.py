"""What a task gives to a trainer."""

import hashlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_training.tokenizers import CharacterTokenizer


class Generator(Protocol):
    """Whoever can continue a prefix: a Trainer of either backend."""

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray: ...


class Task(Protocol):
    """Batches are a function of the update's number alone, so a run can go on from anywhere."""

    model: ModelConfig
    steps_per_epoch: int
    rows_are_answers: bool

    @property
    def tokenizer(self) -> CharacterTokenizer | None:
        """What its ids mean, where they are text."""
        ...

    @property
    def fingerprint(self) -> str:
        """What `fingerprint` says of all its data."""
        ...

    def train_batch(self, update: int) -> Batch:
        """The batch of update 1, 2, ..."""
        ...

    def eval_batches(self) -> Iterator[Batch]:
        """Held-out data, always the same."""
        ...

    def sample(self, generator: Generator) -> str:
        """One line that shows what the model does now."""
        ...

    def summary(
        self, generator: Generator, epochs: list[tuple[float, float]]
    ) -> tuple[dict[str, float], list[str]]:
        """Final figures, and lines that a person can judge; `epochs`: mean loss and accuracy."""
        ...


def fingerprint(*parts: np.ndarray | str) -> str:
    """The SHA-256 of arrays, with their dtypes and shapes, and texts: other data has another."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        digest.update(data)
    return digest.hexdigest()
