"""Whole runs small enough for a test, through the trainer's own loop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import train
from parity_tests.training.test_training import small
from transformer_spec.parameters import parameter_shapes
from transformer_spec.schedules import Constant
from transformer_spec.train_config import TrainConfig
from transformer_training.checkpoints import manifest, store
from transformer_training.checkpoints.store import Saved
from transformer_training.display import Display
from transformer_training.runs import resuming
from transformer_training.runs.directory import RunDirectory
from transformer_training.runs.saving import Saver
from transformer_training.tasks import Task, language_model, make_task, sort
from transformer_training.trainer import Trainer

TIMES = {"seconds", "tokens_per_second"}


def few_rows(monkeypatch) -> None:
    """Sorting with so few rows that four updates of 12 are an epoch; short evaluations of both."""
    for name, count in {"TRAINING": 40, "HELD_OUT": 20, "EVAL_BATCH": 10}.items():
        monkeypatch.setattr(sort, name, count)
    for name, count in {"EVAL_BATCHES": 2, "EVAL_BATCH": 10, "SAMPLE": 5, "SUMMARY": 5}.items():
        monkeypatch.setattr(language_model, name, count)


def small_task(name: str, num_layers: int = 1, **changes: Any) -> tuple[Task, TrainConfig]:
    """A preset with dropout on, at a rate high enough to move."""
    task, config = small(name, dropout=True)
    scale = 8**-0.5 if task.model.attention_scale else None
    sizes = {"d_model": 8, "d_ff": 11, "num_heads": 2, "num_layers": num_layers}
    model = replace(task.model, attention_scale=scale, **sizes)
    rhythm = {"schedule": Constant(), "epochs": None, "steps": 10, "log_every": 3, "eval_every": 5}
    config = replace(config, **({"dtype": "float32", "batch_size": 12} | rhythm | changes))
    return make_task(model, config), config


def run_part(
    path: Path,
    trainer: Trainer,
    task: Task,
    config: TrainConfig,
    *,
    backend: str = "jax",
    resume: bool = False,
    stop_after: int | None = None,
) -> int:
    """What one process does of a run, as `train.py` does it; returns the exit status."""
    directory = RunDirectory(str(path), "small", resume)
    directory.lock()
    try:
        saved = resuming.newest(directory, task, config, print) if resume else None
        directory.save_config({"train": config.to_dict()})
        total = config.total_steps(task.steps_per_epoch)
        saver = Saver(directory, backend, task, config)
        display = Display(total)
        run = train.Run(trainer, task, config, total, directory, display, saver, stop_after)
        return run.complete(saved)
    finally:
        directory.unlock()


def newest(path: Path, task: Task, config: TrainConfig) -> Saved:
    """The newest checkpoint of a run, verified."""
    last = store.listed(path / "checkpoints")[-1]
    return store.read(last, parameter_shapes(task.model), config.parameter_dtype)


def digests(path: Path) -> dict[str, str]:
    """Hashes of parameters, moments and all losses in the newest checkpoint: of every bit."""
    about = manifest.read(store.listed(path / "checkpoints")[-1])
    return {entry["name"]: entry["sha256"] for entry in about.files}


def curve(path: Path) -> list[dict[str, Any]]:
    """The records of a run without the times in them."""
    records = RunDirectory(str(path), "small", resume=True).records()
    return [{k: v for k, v in record.items() if k not in TIMES} for record in records]
