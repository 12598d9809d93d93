"""Train a Transformer in JAX or PyTorch, or in both in lockstep: `python train.py --help`."""

import importlib
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from transformer_spec import command_line
from transformer_spec.checkpoint import save_arrays
from transformer_spec.display import Display
from transformer_spec.experiment import TrainConfig
from transformer_spec.fields import ConfigError
from transformer_spec.huggingface.errors import CheckpointError
from transformer_spec.huggingface.starting import open_start
from transformer_spec.plots import plot_losses
from transformer_spec.run import Interruption, Meter, NotFiniteError, RunDirectory, evaluate
from transformer_spec.schedules import learning_rate
from transformer_spec.tasks import Task, make_task

TRAINERS = {
    "jax": "flax_transformer.training",
    "torch": "torch_reference.training",
    "both": "parity.lockstep",
}


def main() -> int:
    options, model, config = command_line.parse(sys.argv[1:])
    if options.list:
        print(command_line.list_presets())
        return 0
    try:
        directory = RunDirectory(options.run_dir, f"{options.preset}-{options.backend}")
        task = make_task(model, config)
        total = config.total_steps(task.steps_per_epoch)
        start = open_start(options.init_from, task) if options.init_from else None
        if options.dry_run:
            print(command_line.describe(options, config, task))
            return 0
        weights = dict(start.arrays(config.dtype)) if start else {}
        directory.create(command_line.resolved(options, task, config))
    except (ConfigError, CheckpointError) as error:
        command_line.fail(error)
    trainer = importlib.import_module(TRAINERS[options.backend]).Trainer(task.model, config)
    if weights:
        trainer.load_parameters(weights)
        weights.clear()  # the trainer has its own
    with Display(total) as display:
        status = Run(trainer, task, config, total, directory, display).run()
    display.say(f"\nsaved in {directory.path}")
    return status


@dataclass
class Run:
    """One training run, from its first update to its last picture."""

    trainer: Any
    task: Task
    config: TrainConfig
    total: int
    directory: RunDirectory
    display: Display
    meter: Meter = field(default_factory=Meter)

    def run(self) -> int:
        """Train and finish; the exit status says how it ended. The weights are kept in any case."""
        status = 0
        try:
            self.train()
        except KeyboardInterrupt:
            status = self.stop(130, "interrupted")
        except NotFiniteError as error:
            status = self.stop(1, f"stopped: {error}")
        save_arrays(self.directory.path / "model.safetensors", self.trainer.parameters())
        if status == 0:
            self.finish()
        return status

    def train(self) -> None:
        """The loop: every update of the run, its records and its evaluations."""
        start = time.perf_counter()
        eval_every = self.config.eval_every or self.task.steps_per_epoch
        with Interruption() as interruption:
            for update in range(1, self.total + 1):
                batch, rate = self.task.train_batch(update), self.learning_rate(update)
                self.meter.add(self.trainer.train(batch, rate), batch)
                self.display.advance(update)
                evaluating = update % eval_every == 0 or update == self.total
                logging = update % self.config.log_every == 0 or update == 1
                if logging or evaluating or interruption.asked:
                    seconds = time.perf_counter() - start
                    record = {"step": update, "seconds": seconds, "lr": rate}
                    self.record(record | self.meter.flush(), evaluating)
                if interruption.asked:
                    raise KeyboardInterrupt

    def learning_rate(self, update: int) -> float:
        return learning_rate(
            self.config.schedule,
            update,
            peak=self.config.learning_rate,
            d_model=self.task.model.d_model,
            total_steps=self.total,
        )

    def record(self, record: dict[str, Any], evaluating: bool) -> None:
        """Complete a record, write it down, show it."""
        record |= self.trainer.differences()
        if evaluating:
            record |= evaluate(self.trainer, self.task)
            record["sample"] = self.task.sample(self.trainer)
        self.directory.log(record)
        self.display.show(record)
        self.meter.restart_clock()

    def finish(self) -> None:
        """Final figures, lines to judge by, and the loss curve."""
        epochs = self.meter.epochs(self.task.steps_per_epoch)
        figures, lines = self.task.summary(self.trainer, epochs)
        self.display.say("\n" + "\n".join(lines))
        if figures:
            self.directory.log({"step": self.total} | figures)
        if not plot_losses(self.directory.records(), self.directory.path / "loss.png"):
            self.display.say("no loss.png: matplotlib is not installed (the extra `plots` has it)")

    def stop(self, status: int, reason: str) -> int:
        self.display.say(reason)
        return status


if __name__ == "__main__":
    raise SystemExit(main())
