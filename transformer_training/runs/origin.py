"""Where a value that is not finite came from: the updates since the last checkpoint, repeated."""

from collections.abc import Callable, Iterable

from transformer_spec.batch import Batch
from transformer_training.checkpoints.store import Saved
from transformer_training.runs.meter import NotFiniteError
from transformer_training.tasks import Task
from transformer_training.trainer import Trainer


def find_origin(
    error: NotFiniteError,
    saved: Saved,
    trainer: Trainer,
    task: Task,
    learning_rate: Callable[[int], float],
) -> str:
    """What was not finite first, in words.

    Metrics are read late, when the state is bad already. But an update is a function of the state,
    the batch and its number: from the last good checkpoint the same updates lead to the state just
    before the bad one, and its forward pass is checked value by value.
    """
    trainer.load_state(saved.state)
    for update in range(saved.manifest.step + 1, error.update):
        trainer.train(task.train_batch(update), learning_rate(update))
    batch = task.train_batch(error.update)
    found = _first_bad(trainer, [batch])
    if not found and error.after:
        rate = learning_rate(error.update)
        trainer.train(batch, rate)
        if trainer.named_state().not_finite():
            return f"all values and gradients are finite, the step at rate {rate:.3g} is not"
        found = _first_bad(trainer, task.eval_batches())
    since = saved.manifest.step
    return found or f"it did not happen again when the updates since {since} were repeated"


def _first_bad(trainer: Trainer, batches: Iterable[Batch]) -> str:
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
