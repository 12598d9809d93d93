"""Train a Transformer in JAX or PyTorch, or in both in lockstep: `python train.py --help`.

Parse the command line, build a task and a trainer, loop over updates, save. An installed package
has this file as `transformer_train`, and the script `transformer-train` that starts it.
"""

import math
import sys
from dataclasses import dataclass, field
from typing import Any

from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError
from transformer_spec.files import CheckpointError
from transformer_spec.schedules import learning_rate
from transformer_spec.train_config import TrainConfig
from transformer_training import command_line, descriptions
from transformer_training.checkpoints.durable import SaveError
from transformer_training.checkpoints.store import Saved
from transformer_training.display import Display
from transformer_training.init_from import open_matching
from transformer_training.lockstep import Lockstep
from transformer_training.plots import plot_losses
from transformer_training.runs import resuming
from transformer_training.runs.directory import RunDirectory
from transformer_training.runs.interruption import Interruption
from transformer_training.runs.meter import Meter, NotFiniteError, evaluate
from transformer_training.runs.origin import find_origin
from transformer_training.runs.saving import Saver
from transformer_training.tasks import Task, make_task
from transformer_training.trainer import Trainer

ENDED = {0: "stopped as asked", 130: "interrupted", 143: "stopped by SIGTERM"}


def script() -> int:
    """`python train.py`, and the console script `transformer-train`."""
    return command_line.exit_status(main)


def main() -> int:
    options, model, config = command_line.parse(sys.argv[1:])
    if options.list:
        print(descriptions.list_presets())
        return 0
    resume = options.resume is not None
    try:
        name = f"{options.preset}-{options.backend}"
        directory = RunDirectory(options.resume or options.run_dir, name, resume)
        task = make_task(model, config)
        total = config.total_steps(task.steps_per_epoch)
        start = None if resume or not options.init_from else open_matching(options.init_from, task)
        if options.dry_run:
            print(descriptions.describe(options, config, task))
            return 0
        weights = dict(start.arrays(config.parameter_dtype)) if start else None
        directory.lock()
        saved = resuming.newest(directory, task, config, print) if resume else None
        if saved and resuming.is_finished(directory, saved, task, total):
            print(f"{directory.path} is finished: all {total:,} updates are done")
            return 0
        command_line.check_stop(options.stop_after, saved.manifest.step if saved else 0)
        directory.save_config(descriptions.resolved(options, task, config))
    except (ConfigError, CheckpointError) as error:
        command_line.fail(error)
    except SaveError as error:
        command_line.fail(error, status=1)
    trainer = build_trainer(options.backend, task.model, config)
    if weights:
        trainer.load_parameters(weights)
        del weights  # the trainer has its own
    saver = Saver(directory, options.backend, task, config)
    with Display(total) as display:
        run = Run(trainer, task, config, total, directory, display, saver, options.stop_after)
        return run.complete(saved)


def build_trainer(backend: str, model: ModelConfig, config: TrainConfig) -> Trainer:
    """The trainer of a backend, whose framework is imported here and not before."""
    match backend:
        case "jax":
            from flax_transformer import training as flax_training

            return flax_training.Trainer(model, config)
        case "torch":
            from torch_reference import training as torch_training

            return torch_training.Trainer(model, config)
        case _:
            return Lockstep(*(build_trainer(name, model, config) for name in ("jax", "torch")))


@dataclass
class Run:
    """One training run, from its first update or from a checkpoint to its loss curve."""

    trainer: Trainer
    task: Task
    config: TrainConfig
    total: int
    directory: RunDirectory
    display: Display
    saver: Saver
    stop_after: int | None = None
    meter: Meter = field(default_factory=Meter)
    done: int = 0

    def complete(self, saved: Saved | None = None) -> int:
        """Start or resume, train, and finish; the exit status says how the run ended."""
        try:
            self.resume(saved) if saved else self.save()
            status = self.train()
            self.saver.wait()
            if status is None:
                self.finish()
            self.directory.save_weights(self.trainer.parameters())
        except NotFiniteError as error:
            return self.end(1, f"stopped: {error}: {self.explain(error)}")
        except SaveError as error:
            return self.end(1, f"stopped: {error}{self.hint}")
        if status is None:
            return self.end(0, f"\nsaved in {self.directory.path}")
        reached = f"after update {self.done:,} of {self.total:,}"
        return self.end(status, f"{ENDED[status]} {reached}{self.hint}")

    def train(self) -> int | None:
        """The loop: each update, then its record, evaluation and checkpoint where they are due.

        Returns None after the last update; the exit status if asked to stop before it.
        """
        with Interruption() as interruption:
            for update in range(self.done + 1, self.total + 1):
                batch, rate = self.task.train_batch(update), self.learning_rate(update)
                self.meter.add(self.trainer.train(batch, rate), batch)
                self.done = update
                self.display.advance(update)
                self.saver.poll()
                evaluating = self.is_due(self.config.eval_every)
                logging = update % self.config.log_every == 0 or update == 1
                record = self.record(rate, evaluating) if logging or evaluating else {}
                best = evaluating and self.saver.is_best(update, record["eval_loss"])
                status = 0 if update == self.stop_after else interruption.status
                if self.is_due(self.config.save_every) or best or status is not None:
                    self.save(record.get("eval_loss"))
                if status is not None and update < self.total:
                    return status
        return None

    def is_due(self, every: int | None) -> bool:
        """Whether it is due: `every` so many updates (None: once an epoch), and after the last."""
        return self.done % (every or self.task.steps_per_epoch) == 0 or self.done == self.total

    def learning_rate(self, update: int) -> float:
        return learning_rate(
            self.config.schedule,
            update,
            peak=self.config.learning_rate,
            d_model=self.task.model.d_model,
            total_steps=self.total,
        )

    def record(self, rate: float, evaluating: bool) -> dict[str, Any]:
        """Figures of the updates since the last record, logged and shown."""
        record = {"step": self.done, "seconds": self.meter.seconds, "lr": rate}
        record |= self.meter.means() | self.trainer.differences()
        if evaluating:
            record |= evaluate(self.trainer, self.task)
            record["sample"] = self.task.sample(self.trainer)
        for name, value in record.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise NotFiniteError(f"{name} is {value}", self.done, after=True)
        self.directory.log(record)
        self.display.show(record)
        self.meter.restart_clock()
        return record

    def save(self, eval_loss: float | None = None) -> None:
        """Save a checkpoint, unless a loss or an array of it is not finite."""
        self.meter.read()
        self.saver.save(self.trainer.named_state(), self.meter, eval_loss)

    def resume(self, saved: Saved) -> None:
        """Restore everything that the run which wrote this checkpoint had."""
        manifest = saved.manifest
        self.trainer.load_state(saved.state)
        self.meter = Meter.resume(saved.history, manifest.recorded, manifest.seconds)
        self.saver.resume(manifest)
        self.done = manifest.step
        self.display.advance(self.done)
        self.display.say(f"resuming after update {self.done:,}, from {saved.path}")
        if missing := self.directory.rewind(manifest.records):
            self.display.say(f"metrics.jsonl has lost {missing} earlier records")

    def finish(self) -> None:
        """Log and show the final figures, and plot the loss curve."""
        epochs = self.meter.epochs(self.task.steps_per_epoch)
        figures, lines = self.task.summary(self.trainer, epochs)
        self.display.say("\n" + "\n".join(lines))
        if figures:
            self.directory.log({"step": self.total} | figures)
        if not plot_losses(self.directory.records(), self.directory.path / "loss.png"):
            self.display.say("no loss.png: matplotlib is not installed (the extra `plots` has it)")

    def explain(self, error: NotFiniteError) -> str:
        """Where a value that is not finite came from, as far as can be told."""
        self.display.say(f"{error}; repeating the updates since the last checkpoint")
        try:
            self.saver.wait()
            saved = resuming.newest(self.directory, self.task, self.config, self.display.say)
        except (SaveError, CheckpointError) as problem:
            return f"no checkpoint to repeat from: {problem}"
        origin = find_origin(error, saved, self.trainer, self.task, self.learning_rate)
        return f"{origin}; the last good checkpoint is {saved.path}"

    def end(self, status: int, reason: str) -> int:
        """Print the last line of a run, and return its exit status."""
        self.display.say(reason)
        return status

    @property
    def hint(self) -> str:
        return f"; resume with: {command_line.COMMAND} --resume {self.directory.path}"


if __name__ == "__main__":
    raise SystemExit(script())
