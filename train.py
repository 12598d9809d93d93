"""Train a Transformer in JAX or PyTorch, or in both in lockstep: `python train.py --help`."""

import importlib
import sys
import time
from typing import Any

from transformer_spec import command_line
from transformer_spec.checkpoint import save_arrays
from transformer_spec.display import Display
from transformer_spec.experiment import TrainConfig
from transformer_spec.fields import ConfigError
from transformer_spec.plots import plot_losses
from transformer_spec.run import Meter, NotFiniteError, RunDirectory, evaluate
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
        if options.dry_run:
            print(command_line.describe(options, config, task))
            return 0
        directory.create(command_line.resolved(options, task.model, config))
    except ConfigError as error:
        command_line.fail(error)
    trainer = importlib.import_module(TRAINERS[options.backend]).Trainer(task.model, config)
    meter = Meter()
    with Display(total) as display:
        status = attempt(trainer, task, config, total, directory, meter, display)
    save_arrays(directory.path / "model.safetensors", trainer.parameters())
    if status == 0:
        finish(trainer, task, directory, meter, display)
    display.say(f"\nsaved in {directory.path}")
    return status


def attempt(
    trainer: Any,
    task: Task,
    config: TrainConfig,
    total: int,
    directory: RunDirectory,
    meter: Meter,
    display: Display,
) -> int:
    """Train; the exit status says how it ended. The weights reached are kept in any case."""
    try:
        train(trainer, task, config, total, directory, meter, display)
        return 0
    except KeyboardInterrupt:
        display.say("interrupted")
        return 130
    except NotFiniteError as error:
        display.say(f"stopped: {error}")
        return 1


def train(
    trainer: Any,
    task: Task,
    config: TrainConfig,
    total: int,
    directory: RunDirectory,
    meter: Meter,
    display: Display,
) -> None:
    """The loop: every update of the run, its records and its evaluations."""
    eval_every = config.eval_every or task.steps_per_epoch
    start = time.perf_counter()
    for update in range(1, total + 1):
        batch = task.train_batch(update)
        rate = learning_rate(
            config.schedule,
            update,
            peak=config.learning_rate,
            d_model=task.model.d_model,
            total_steps=total,
        )
        meter.add(trainer.train(batch, rate), batch)
        display.advance(update)
        evaluating = update % eval_every == 0 or update == total
        if evaluating or update % config.log_every == 0 or update == 1:
            record = {"step": update, "seconds": time.perf_counter() - start, "lr": rate}
            record |= meter.flush() | trainer.differences()
            if evaluating:
                record |= evaluate(trainer, task) | {"sample": task.sample(trainer)}
            directory.log(record)
            display.show(record)
            meter.restart_clock()


def finish(
    trainer: Any, task: Task, directory: RunDirectory, meter: Meter, display: Display
) -> None:
    """Final figures, lines to judge by, and the loss curve."""
    figures, lines = task.summary(trainer, meter.epochs(task.steps_per_epoch))
    display.say("\n" + "\n".join(lines))
    if figures:
        directory.log({"step": len(meter.losses)} | figures)
    if not plot_losses(directory.records(), directory.path / "loss.png"):
        display.say("no loss.png: matplotlib is not installed (pip install '.[plots]')")


if __name__ == "__main__":
    raise SystemExit(main())
