"""What a training run asks of a task."""

import hashlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_training.tokenizers import CharacterTokenizer


class Generator(Protocol):
    """Continues a prefix, as every Trainer does."""

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray: ...


class Task(Protocol):
    """Batches are a function of the update's number alone, so a run can resume anywhere."""

    model: ModelConfig
    steps_per_epoch: int
    rows_are_answers: bool

    @property
    def tokenizer(self) -> CharacterTokenizer | None:
        """How ids stand for text, where they do."""
        ...

    @property
    def fingerprint(self) -> str:
        """The hash of all its data, by which a resumed run knows it."""
        ...

    def train_batch(self, update: int) -> Batch:
        """The batch of update 1, 2, ..."""
        ...

    def eval_batches(self) -> Iterator[Batch]:
        """Held-out data, always the same."""
        ...

    def sample(self, generator: Generator) -> str:
        """One line that shows what the model does at this point."""
        ...

    def summary(
        self, generator: Generator, epochs: list[tuple[float, float]]
    ) -> tuple[dict[str, float], list[str]]:
        """Final figures, and lines to show; `epochs` has the mean loss and accuracy of each."""
        ...


def fingerprint(*parts: np.ndarray | str) -> str:
    """The SHA-256 of texts, and of arrays with their dtypes and shapes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        digest.update(data)
    return digest.hexdigest()
