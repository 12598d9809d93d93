"""Train a Transformer in JAX or PyTorch, or in both in lockstep: `python train.py --help`."""

import importlib
import math
import sys
from dataclasses import dataclass, field
from typing import Any

from transformer_hub.errors import CheckpointError
from transformer_spec.fields import ConfigError
from transformer_spec.schedules import learning_rate
from transformer_spec.train_config import TrainConfig
from transformer_training import command_line, descriptions
from transformer_training.checkpoints.durable import SaveError
from transformer_training.checkpoints.store import Saved
from transformer_training.display import Display
from transformer_training.plots import plot_losses
from transformer_training.runs import looking, resuming
from transformer_training.runs.directory import RunDirectory
from transformer_training.runs.interruption import Interruption
from transformer_training.runs.meter import Meter, NotFiniteError, evaluate
from transformer_training.runs.saving import Saver
from transformer_training.starting import open_start
from transformer_training.tasks import Task, make_task

TRAINERS = {
    "jax": "flax_transformer.training",
    "torch": "torch_reference.training",
    "both": "transformer_training.lockstep",
}
ENDED = {0: "stopped as asked", 130: "interrupted", 143: "stopped by SIGTERM"}


def main() -> int:
    options, model, config = command_line.parse(sys.argv[1:])
    if options.list:
        print(descriptions.list_presets())
        return 0
    try:
        name, returning = f"{options.preset}-{options.backend}", options.resume is not None
        directory = RunDirectory(options.resume or options.run_dir, name, returning)
        task = make_task(model, config)
        total = config.total_steps(task.steps_per_epoch)
        source = None if returning else options.init_from
        start = open_start(source, task) if source else None
        if options.dry_run:
            print(descriptions.describe(options, config, task))
            return 0
        weights = dict(start.arrays(config.parameter_dtype)) if start else {}
        directory.lock()
        saved = resuming.newest(directory, task, config, print) if returning else None
        if saved and resuming.is_finished(directory, saved, task, total):
            print(f"{directory.path} is finished: all {total:,} updates are done")
            return 0
        command_line.check_stop(options.stop_after, saved.manifest.step if saved else 0)
        directory.save_config(descriptions.resolved(options, task, config))
    except (ConfigError, CheckpointError) as error:
        command_line.fail(error)
    except SaveError as error:
        command_line.fail(error, status=1)
    trainer = importlib.import_module(TRAINERS[options.backend]).Trainer(task.model, config)
    if weights:
        trainer.load_parameters(weights)
        weights.clear()  # the trainer has its own
    saver = Saver(directory, options.backend, task, config)
    with Display(total) as display:
        run = Run(trainer, task, config, total, directory, display, saver, options.stop_after)
        return run.run(saved)


@dataclass
class Run:
    """One training run, from its first update or from a checkpoint to its last picture."""

    trainer: Any
    task: Task
    config: TrainConfig
    total: int
    directory: RunDirectory
    display: Display
    saver: Saver
    stop_after: int | None = None
    meter: Meter = field(default_factory=Meter)
    done: int = 0

    def run(self, saved: Saved | None = None) -> int:
        """Begin, train and finish; the exit status says how it ended."""
        try:
            self.go_on(saved) if saved else self.save()
            status = self.train()
            self.saver.wait()
            if status is None:
                self.finish()
            self.directory.save_weights(self.trainer.parameters())
        except NotFiniteError as error:
            return self.end(1, f"stopped: {error}: {self.look(error)}")
        except SaveError as error:
            return self.end(1, f"stopped: {error}{self.hint}")
        if status is None:
            return self.end(0, f"\nsaved in {self.directory.path}")
        reached = f"after update {self.done:,} of {self.total:,}"
        return self.end(status, f"{ENDED[status]} {reached}{self.hint}")

    def train(self) -> int | None:
        """The loop: every update, its record, its evaluation, its checkpoint.

        None at its end; the exit status of who asked for an earlier one.
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
        """Whether something is due that comes so often, or once an epoch, and at the end."""
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
        """What there is to say of the updates since the last record: written down and shown."""
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
        """A checkpoint of what is known to be finite."""
        self.meter.read()
        self.saver.save(self.trainer.named_state(), self.meter, eval_loss)

    def go_on(self, saved: Saved) -> None:
        """Be the run that wrote this checkpoint."""
        about = saved.manifest
        self.trainer.load_state(saved.state)
        self.meter = Meter.going_on(saved.history, about.recorded, about.seconds)
        self.saver.follow(about)
        self.done = about.step
        self.display.advance(self.done)
        self.display.say(f"going on after update {self.done:,}, from {saved.path}")
        if missing := self.directory.rewind(about.records):
            self.display.say(f"metrics.jsonl has lost {missing} records of before")

    def finish(self) -> None:
        """Final figures, lines to judge by, and the loss curve."""
        epochs = self.meter.epochs(self.task.steps_per_epoch)
        figures, lines = self.task.summary(self.trainer, epochs)
        self.display.say("\n" + "\n".join(lines))
        if figures:
            self.directory.log({"step": self.total} | figures)
        if not plot_losses(self.directory.records(), self.directory.path / "loss.png"):
            self.display.say("no loss.png: matplotlib is not installed (the extra `plots` has it)")

    def look(self, error: NotFiniteError) -> str:
        """Where a value that is not finite began, as far as can be seen."""
        self.display.say(f"{error}; looking for its origin")
        try:
            self.saver.wait()
            saved = resuming.newest(self.directory, self.task, self.config, self.display.say)
        except (SaveError, CheckpointError) as problem:
            return f"no checkpoint to look from: {problem}"
        found = looking.first_bad(error, saved, self.trainer, self.task, self.learning_rate)
        return f"{found}; the last good checkpoint is {saved.path}"

    def end(self, status: int, reason: str) -> int:
        """The last line of a run."""
        self.display.say(reason)
        return status

    @property
    def hint(self) -> str:
        return f"; go on with: python train.py --resume {self.directory.path}"


if __name__ == "__main__":
    raise SystemExit(command_line.exit_status(main))
