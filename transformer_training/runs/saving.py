"""Checkpoints of a run, written in the background while it trains, one at a time."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from transformer_spec.initializers import DRAWS
from transformer_spec.state import Named, NamedState
from transformer_spec.train_config import TrainConfig
from transformer_training.checkpoints import store
from transformer_training.checkpoints.manifest import Manifest
from transformer_training.runs.directory import RunDirectory
from transformer_training.runs.meter import Meter, NotFiniteError
from transformer_training.tasks import Task


class Saver:
    """Writes checkpoints, and removes all but the newest few and the best.

    Arrays that are saved must not change any more: the caller passes copies. A save waits for the
    one before it; an error in one is raised by the next call of any method.

    Args:
        directory: of the run.
        backend: its name, for the manifest.
        task, config: of the run.
    """

    def __init__(self, directory: RunDirectory, backend: str, task: Task, config: TrainConfig):
        self.directory, self.keep, self.per_epoch = directory, config.keep, task.steps_per_epoch
        self.about: dict[str, Any] = {
            "backend": backend,
            "draws": DRAWS,
            "fingerprint": task.fingerprint,
            "model": task.model.to_dict(),
            "train": config.to_dict(),
        }
        self.step: int | None = None
        self.best: tuple[float, int] | None = None
        self._pool = ThreadPoolExecutor(1, "saving")
        self._running: Future[None] | None = None

    def resume(self, manifest: Manifest) -> None:
        """Continue after an existing checkpoint; where fewer are to be kept, remove the others.

        Raises:
            SaveError: one cannot be removed.
        """
        self.step = manifest.step
        self.about["draws"] = manifest.draws
        if manifest.best_eval_loss is not None and manifest.best_step is not None:
            self.best = (manifest.best_eval_loss, manifest.best_step)
        store.prune(self.directory.checkpoints, self.keep, manifest.best_step)

    def is_best(self, step: int, eval_loss: float) -> bool:
        """Record an evaluation; return whether it is the best so far."""
        better = self.best is None or eval_loss < self.best[0]
        if better:
            self.best = (eval_loss, step)
        return better

    def save(self, state: NamedState, meter: Meter, eval_loss: float | None = None) -> None:
        """Start to write a checkpoint, unless this step has one.

        Raises:
            NotFiniteError: the state holds a NaN or an infinity; nothing is written.
            SaveError: the checkpoint before this one could not be written.
        """
        self.wait()
        if state.step == self.step:
            return
        if bad := state.not_finite():
            raise NotFiniteError(f"{bad[0]} is not finite", state.step, after=True)
        best_eval_loss, best_step = self.best or (None, None)
        about = Manifest(
            step=state.step,
            next_update=state.step + 1,
            epoch=state.step // self.per_epoch + 1,
            dropout_key=state.dropout_key.tolist(),
            seconds=meter.seconds,
            records=self.directory.count,
            recorded=meter.recorded,
            eval_loss=eval_loss,
            best_step=best_step,
            best_eval_loss=best_eval_loss,
            **self.about,
        )
        self.step = state.step
        self._running = self._pool.submit(self._write, about, state, meter.history(), best_step)

    def _write(self, about: Manifest, state: NamedState, history: Named, best: int | None) -> None:
        self.directory.sync_records()
        store.write(self.directory.checkpoints, about, state, history)
        store.prune(self.directory.checkpoints, self.keep, best)

    def poll(self) -> None:
        """Raise the error of a save that has failed, without waiting."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the save in flight.

        Raises:
            SaveError: it could not be written.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()
