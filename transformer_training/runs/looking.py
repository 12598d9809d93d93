"""Where a value that is not finite began: the updates since the last good checkpoint once more."""

from collections.abc import Callable, Iterable
from typing import Any

from transformer_spec.batch import Batch
from transformer_training.checkpoints.store import Saved
from transformer_training.runs.meter import NotFiniteError
from transformer_training.tasks import Task


def first_bad(
    error: NotFiniteError,
    saved: Saved,
    trainer: Any,
    task: Task,
    rate: Callable[[int], float],
) -> str:
    """What was not finite first, in words.

    Metrics are read late, when the state is bad already. But an update is a function of the state,
    of the batch and of its number: from the last good checkpoint the same updates lead to the state
    just before the bad one, and its forward pass is walked value by value.
    """
    trainer.load_state(saved.state)
    for update in range(saved.manifest.step + 1, error.update):
        trainer.train(task.train_batch(update), rate(update))
    batch = task.train_batch(error.update)
    found = _look(trainer, [batch])
    if not found and error.after:
        trainer.train(batch, rate(error.update))
        found = _step(trainer, rate(error.update)) or _look(trainer, task.eval_batches())
    return found or f"not met again when the updates since {saved.manifest.step} were repeated"


def _step(trainer: Any, rate: float) -> str:
    """What a step spoiled whose values and gradients are finite."""
    bad = trainer.named_state().not_finite()
    return f"all values and gradients are finite, the step at rate {rate:.3g} is not" if bad else ""


def _look(trainer: Any, batches: Iterable[Batch]) -> str:
    """The first parameter or moment, and value and gradient of a batch, that are not finite."""
    bad = trainer.named_state().not_finite()
    for batch in batches:
        value, gradient = trainer.first_bad(batch)
        if bad or value or gradient:
            return "; ".join(
                [f"bad before it: {name}" for name in bad[:1]]
                + ([f"first bad value: {value}"] if value else [])
                + ([f"first bad gradient: {gradient}"] if gradient else [])
            )
    return ""
