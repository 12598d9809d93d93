"""Sorting: eight numbers from 1 to 10 in, the same in ascending order out.

Ids: 0 padding, 1..10 the numbers, 11 start, 12 end.
"""

from collections.abc import Iterator

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_spec.fields import require
from transformer_spec.train_config import TrainConfig
from transformer_training.tasks.task import Generator, fingerprint

NUMBERS, LENGTH, START, END = 10, 8, 11, 12
TRAINING, HELD_OUT = 10_000, 1_000
EVAL_BATCH = 500
# Epoch -> loss and accuracy (%) in training, as the sorting study printed them.
STUDY = {
    5: (1.2341, 62.35),
    10: (0.4523, 85.67),
    15: (0.1876, 94.12),
    20: (0.0723, 97.89),
    25: (0.0312, 99.21),
    30: (0.0156, 99.67),
    35: (0.0089, 99.85),
    40: (0.0052, 99.93),
    45: (0.0031, 99.97),
    50: (0.0019, 99.99),
}


class SortTask:
    """10,000 sequences to train on, shuffled every epoch, and 1,000 others to evaluate on."""

    tokenizer = None
    rows_are_answers = True

    def __init__(self, model: ModelConfig, train: TrainConfig):
        require(model.arch == "encoder_decoder", "task", "sort", "run on an encoder_decoder")
        require(model.vocab_size > END, "vocab_size", model.vocab_size, f"above {END} to sort")
        require(model.max_seq_len > LENGTH, "max_seq_len", model.max_seq_len, f"above {LENGTH}")
        self.model = model
        self.batch_size, self.seed = train.batch_size, train.seed
        self.steps_per_epoch = -(-TRAINING // train.batch_size)
        self.training, self.held_out = _sequences(train.seed)
        self._epoch, self._order = -1, np.arange(TRAINING)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.training, self.held_out)

    def train_batch(self, update: int) -> Batch:
        epoch, step = divmod(update - 1, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self.seed, 1, epoch]).permutation(TRAINING)
        rows = self._order[step * self.batch_size :][: self.batch_size]
        return _batch(self.training[rows], self.batch_size)

    def eval_batches(self) -> Iterator[Batch]:
        for start in range(0, HELD_OUT, EVAL_BATCH):
            yield _batch(self.held_out[start : start + EVAL_BATCH], EVAL_BATCH)

    def sample(self, generator: Generator) -> str:
        source = self.held_out[:1]
        return _shown(source[0], _decode(generator, source)[0])

    def summary(
        self, generator: Generator, epochs: list[tuple[float, float]]
    ) -> tuple[dict[str, float], list[str]]:
        batches = np.split(self.held_out, HELD_OUT // EVAL_BATCH)
        decoded = np.concatenate([_decode(generator, source) for source in batches])
        wanted = _batch(self.held_out, HELD_OUT).labels
        exact = float((decoded == wanted).all(axis=1).mean())
        lines = _table(epochs)
        lines += [_shown(s, d) for s, d in zip(self.held_out[:5], decoded[:5], strict=True)]
        lines.append(f"exact match of {HELD_OUT:,} held-out sequences, greedy: {exact:.2%}")
        return {"exact_match": exact}, lines


def _sequences(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out sequences; no sequence is in both."""
    rng = np.random.default_rng([seed, 0])
    drawn = rng.integers(1, NUMBERS + 1, (2 * (TRAINING + HELD_OUT), LENGTH), dtype=np.int32)
    training, rest = drawn[:TRAINING], drawn[TRAINING:]
    seen = {row.tobytes() for row in training}
    fresh = np.array([row for row in rest if row.tobytes() not in seen])
    return training, fresh[:HELD_OUT]


def _batch(source: np.ndarray, rows: int) -> Batch:
    """A batch of always `rows` rows: what is missing is padding that no loss counts."""
    count = len(source)
    source = np.concatenate([source, np.zeros((rows - count, LENGTH), np.int32)])
    ordered = np.sort(source, axis=1)
    edge = np.ones((rows, 1), np.int32)
    labels = np.concatenate([ordered, END * edge], axis=1)
    mask = np.broadcast_to(np.arange(rows)[:, None] < count, labels.shape)
    target = np.concatenate([START * edge, ordered], axis=1)
    return Batch({"source": source, "target": target}, labels, mask)


def _table(epochs: list[tuple[float, float]]) -> list[str]:
    """The study's table beside ours: loss and accuracy in training, dropout on."""
    rows = [f"{'epoch':>5}  {'loss: study':>11}  {'ours':>6}  {'accuracy: study':>15}  {'ours':>7}"]
    for epoch, (loss, accuracy) in STUDY.items():
        if epoch <= len(epochs):
            ours, our_accuracy = epochs[epoch - 1]
            rows.append(
                f"{epoch:>5}  {loss:>11.4f}  {ours:>6.4f}  {accuracy:>14.2f}%  {our_accuracy:>7.2%}"
            )
    return [*rows, ""] if len(rows) > 1 else []


def _decode(generator: Generator, source: np.ndarray) -> np.ndarray:
    start = np.full((len(source), 1), START, np.int32)
    return generator.greedy({"source": source, "target": start}, LENGTH + 1)[:, 1:]


def _shown(source: np.ndarray, decoded: np.ndarray) -> str:
    right = [*sorted(source), END] == list(decoded)
    words = {0: "pad", START: "start", END: "end"}
    numbers = decoded[:-1] if decoded[-1] == END else decoded
    out = " ".join(str(words.get(i, i)) for i in numbers.tolist())
    return f"{' '.join(map(str, source))} -> {out} {'(sorted)' if right else '(wrong)'}"
