"""What a run measures while it trains."""

import math
import time
from dataclasses import dataclass, field

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.state import Named
from transformer_training.tasks import Task
from transformer_training.trainer import Metrics, Trainer


class NotFiniteError(ArithmeticError):
    """A value became NaN or infinite.

    Args:
        what: the value and what it is, such as "loss is nan".
        update: the update at which it was found.
        after: whether that update was complete by then, so that the bad value is its result.
    """

    def __init__(self, what: str, update: int, after: bool = False):
        super().__init__(f"{what} {'after' if after else 'at'} update {update}")
        self.update, self.after = update, after


@dataclass
class Meter:
    """Metrics of every update, fetched from the device when they are needed.

    Args:
        losses, accuracies: of every update of the run, in training.
        recorded: the updates that the records so far cover.
        before: seconds that the run has taken in earlier processes.
    """

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    recorded: int = 0
    before: float = 0.0
    _pending: list[tuple[Metrics, Batch]] = field(default_factory=list)
    _tokens: int = 0
    _grad_norm: float = math.nan
    _begin: float = field(default_factory=time.perf_counter)

    def __post_init__(self):
        self._since = self._begin

    def add(self, metrics: Metrics, batch: Batch) -> None:
        self._pending.append((metrics, batch))

    def read(self) -> None:
        """Fetch what is still on the device.

        Raises:
            NotFiniteError: the loss or the gradient norm of an update is NaN or infinite.
        """
        pending, self._pending = self._pending, []
        for metrics, batch in pending:
            for name in ("loss", "grad_norm"):
                if not math.isfinite(value := float(metrics[name])):
                    raise NotFiniteError(f"{name} is {value}", len(self.losses) + 1)
            self.losses.append(float(metrics["loss"]))
            self.accuracies.append(int(metrics["correct"]) / max(int(batch.label_mask.sum()), 1))
            self._grad_norm = float(metrics["grad_norm"])
            self._tokens += batch.num_tokens()

    def means(self) -> dict[str, float]:
        """Means over the updates since the last record, be it of an earlier process."""
        self.read()
        new = slice(self.recorded, None)
        self.recorded = len(self.losses)
        return {
            "loss": _mean(self.losses[new]),
            "accuracy": _mean(self.accuracies[new]),
            "grad_norm": self._grad_norm,
            "tokens_per_second": self._tokens / (time.perf_counter() - self._since),
        }

    def restart_clock(self) -> None:
        """Start counting time and tokens anew, after a record."""
        self._since, self._tokens = time.perf_counter(), 0

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return self.before + time.perf_counter() - self._begin

    def history(self) -> Named:
        """Loss and accuracy of every update, as a checkpoint keeps them."""
        return {"losses": np.array(self.losses), "accuracies": np.array(self.accuracies)}

    @classmethod
    def resume(cls, history: Named, recorded: int, seconds: float) -> "Meter":
        """The meter of a resumed run."""
        losses, accuracies = (history[name].tolist() for name in ("losses", "accuracies"))
        return cls(losses, accuracies, recorded, seconds)

    def epochs(self, steps_per_epoch: int) -> list[tuple[float, float]]:
        """Mean loss and accuracy of each whole epoch."""
        ends = range(steps_per_epoch, len(self.losses) + 1, steps_per_epoch)
        spans = [slice(end - steps_per_epoch, end) for end in ends]
        return [(_mean(self.losses[s]), _mean(self.accuracies[s])) for s in spans]


def evaluate(trainer: Trainer, task: Task) -> dict[str, float]:
    """Loss and accuracy per token of the held-out data, and per row where a row is an answer.

    A row is right in every token if and only if greedy decoding writes it.
    """
    loss = correct = exact = tokens = rows = 0.0
    for batch in task.eval_batches():
        metrics = trainer.evaluate(batch)
        count = int(batch.label_mask.sum())
        loss += float(metrics["loss"]) * count
        correct += int(metrics["correct"])
        exact += int(metrics["exact"])
        tokens += count
        rows += int(batch.label_mask.any(axis=1).sum())
    found = {"eval_loss": loss / tokens, "eval_accuracy": correct / tokens}
    return found | ({"eval_exact_match": exact / rows} if task.rows_are_answers else {})


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
