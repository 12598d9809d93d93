"""Language modelling over characters: the next one, at every position of a random window."""

import pydoc_data.topics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError, require
from transformer_spec.train_config import TrainConfig
from transformer_training.tasks.task import Generator, fingerprint
from transformer_training.tokenizers import CharacterTokenizer

EVAL_BATCHES, EVAL_BATCH = 20, 64
SAMPLE, SUMMARY = 60, 400


class LanguageModelTask:
    """The first 90 % of a text to train on, its last 10 % to evaluate on."""

    rows_are_answers = False

    def __init__(self, model: ModelConfig, train: TrainConfig):
        require(model.arch == "decoder", "task", "language_model", "run on a decoder")
        text = read_text(train.data)
        self.tokenizer = CharacterTokenizer.from_text(text)
        self.model = replace(model, vocab_size=self.tokenizer.vocab_size)
        self.length, self.batch_size, self.seed = model.max_seq_len, train.batch_size, train.seed
        ids = self.tokenizer.encode(text)
        self.training, self.held_out = np.split(ids, [int(0.9 * len(ids))])
        shortest = min(len(self.training), len(self.held_out))
        if shortest <= self.length:
            name = train.data or "the default text"
            raise ConfigError(
                f"data: {name} is too short, its training and held-out parts have "
                f"{len(self.training)} and {len(self.held_out)} characters; "
                f"each must have more than max_seq_len {self.length}"
            )
        self.steps_per_epoch = max(1, len(self.training) // (self.length * self.batch_size))

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.training, self.held_out, self.tokenizer.characters)

    def train_batch(self, update: int) -> Batch:
        rng = np.random.default_rng([self.seed, update])
        starts = rng.integers(0, len(self.training) - self.length, self.batch_size)
        return _windows(self.training, starts, self.length)

    def eval_batches(self) -> Iterator[Batch]:
        """Windows spread evenly over the held-out text."""
        last = len(self.held_out) - self.length - 1
        starts = np.linspace(0, last, EVAL_BATCHES * EVAL_BATCH).astype(int)
        for part in np.split(starts, EVAL_BATCHES):
            yield _windows(self.held_out, part, self.length)

    def sample(self, generator: Generator) -> str:
        return repr(self._continued(generator, SAMPLE))

    def summary(
        self, generator: Generator, epochs: list[tuple[float, float]]
    ) -> tuple[dict[str, float], list[str]]:
        text = self._continued(generator, SUMMARY)
        return {}, ["the beginning of the held-out text, continued greedily:", "", text]

    def _continued(self, generator: Generator, num_tokens: int) -> str:
        prefix = self.held_out[None, : self.length]
        return self.tokenizer.decode(generator.greedy({"tokens": prefix}, num_tokens)[0])


def read_text(path: str | None) -> str:
    """The text of a UTF-8 file; without one, the language reference that CPython carries."""
    if path is None:
        topics = pydoc_data.topics.topics
        return "\n\n".join(topics[name] for name in sorted(topics))
    try:
        # To open a pipe would block.
        readable = Path(path).is_file() or not Path(path).exists()
        text = Path(path).read_text(encoding="utf-8") if readable else None
    except OSError as error:
        raise ConfigError(f"data: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"data: {path} is not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a null byte or a surrogate
        raise ConfigError(f"data: cannot read {path}: {error}") from None
    if text is None:
        raise ConfigError(f"data: {path} is no regular file; give a text file")
    if not text:
        raise ConfigError(f"data: {path} is empty; give a text file")
    return text


def _windows(ids: np.ndarray, starts: np.ndarray, length: int) -> Batch:
    windows = ids[starts[:, None] + np.arange(length + 1)]
    labels = windows[:, 1:]
    return Batch({"tokens": windows[:, :-1]}, labels, np.ones(labels.shape, bool))
