"""What a run leaves on disk and what it measures on the way."""

import json
import math
import signal
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from transformer_spec.fields import ConfigError
from transformer_spec.tasks.task import Batch


class RunDirectory:
    """config.json, metrics.jsonl, model.safetensors and loss.png of one run."""

    def __init__(self, path: str | None, name: str):
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        self.path = Path(path) if path else _unused(Path("runs") / f"{name}-{stamp}")
        self.check()

    def check(self) -> None:
        """Refuse a path that holds anything already or cannot be a directory."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"run_dir: {self.path} is a file; give a directory")
        if self.path.is_dir() and any(self.path.iterdir()):
            held = "another run" if (self.path / "config.json").exists() else "other files"
            raise ConfigError(f"run_dir: {self.path} already holds {held}; give a new one")

    def create(self, config: dict[str, Any]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        except OSError as error:
            message = f"run_dir: cannot write to {self.path}: {error.strerror}"
            raise ConfigError(message) from None

    def log(self, record: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _unused(path: Path) -> Path:
    """`path`, numbered where two runs start within one second."""
    candidates = [path, *(path.with_name(f"{path.name}-{i}") for i in range(2, 100))]
    return next(candidate for candidate in candidates if not candidate.exists())


class Interruption:
    """Ctrl-C and SIGTERM ask for an end after the update in progress; a second one ends at once.

    An update that is torn apart would leave parameters whose buffers are already given away.
    """

    def __init__(self):
        self.asked = False

    def __enter__(self) -> "Interruption":
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._handlers: dict[int, Any] = {
            number: signal.signal(number, self._ask) for number in numbers
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _: object) -> None:
        self.asked = True
        signal.signal(number, self._handlers[number])


class NotFiniteError(ArithmeticError):
    """A loss or gradient norm became NaN or infinite."""


@dataclass
class Meter:
    """Metrics of every update, read off the device when somebody asks."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    _pending: list[tuple[dict[str, Any], Batch]] = field(default_factory=list)
    _start: float = field(default_factory=time.perf_counter)

    def add(self, metrics: dict[str, Any], batch: Batch) -> None:
        self._pending.append((metrics, batch))

    def flush(self) -> dict[str, float]:
        """Means over the updates since the last flush.

        Raises:
            NotFiniteError: the loss or the gradient norm of an update is NaN or infinite.
        """
        pending, self._pending = self._pending, []
        for metrics, batch in pending:
            update = len(self.losses) + 1
            for name in ("loss", "grad_norm"):
                if not math.isfinite(value := float(metrics[name])):
                    raise NotFiniteError(f"{name} is {value} at update {update}")
            self.losses.append(float(metrics["loss"]))
            self.accuracies.append(int(metrics["correct"]) / max(int(batch.label_mask.sum()), 1))
        elapsed = time.perf_counter() - self._start
        return {
            "loss": _mean(self.losses[-len(pending) :]),
            "accuracy": _mean(self.accuracies[-len(pending) :]),
            "grad_norm": float(pending[-1][0]["grad_norm"]),
            "tokens_per_second": sum(batch.num_tokens() for _, batch in pending) / elapsed,
        }

    def restart_clock(self) -> None:
        self._start = time.perf_counter()

    def epochs(self, steps_per_epoch: int) -> list[tuple[float, float]]:
        """Mean loss and accuracy of each whole epoch."""
        ends = range(steps_per_epoch, len(self.losses) + 1, steps_per_epoch)
        spans = [slice(end - steps_per_epoch, end) for end in ends]
        return [(_mean(self.losses[s]), _mean(self.accuracies[s])) for s in spans]


def evaluate(trainer: Any, task: Any) -> dict[str, float]:
    """Loss and accuracy per token of the held-out data; of whole rows too, where they are answers.

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
