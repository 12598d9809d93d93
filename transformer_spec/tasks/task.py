"""What a task gives to a trainer."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from transformer_spec.config import ModelConfig
from transformer_spec.tokenizers import CharacterTokenizer


class Batch(NamedTuple):
    """The keyword arguments of a model's call, and what it should answer.

    labels: int [B, T], the token after each input token. label_mask: bool [B, T], where it counts.
    """

    inputs: dict[str, Any]
    labels: Any
    label_mask: Any

    def num_tokens(self) -> int:
        """The tokens that a model reads, without padding rows: those of rows that count."""
        rows = self.label_mask.any(axis=1)
        return sum(int(rows.sum()) * ids.shape[1] for ids in self.inputs.values())

    def parts(self, count: int) -> list["Batch"]:
        """So many small batches of equally many rows, in their order; arrays of any framework.

        Raises:
            ValueError: `count` does not divide the rows.
        """
        rows = self.labels.shape[0]
        if rows % count:
            raise ValueError(
                f"batch: {rows} rows are not usable; they must be divisible by {count}"
            )
        size = rows // count
        return [
            Batch(
                {name: array[start : start + size] for name, array in self.inputs.items()},
                self.labels[start : start + size],
                self.label_mask[start : start + size],
            )
            for start in range(0, rows, size)
        ]


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
