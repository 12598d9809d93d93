"""A run to resume: its configs, and the newest of its checkpoints that is undamaged."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError
from transformer_spec.files import (
    MAX_CONFIG,
    CheckpointError,
    existing_directory,
    file_inside,
    read_json,
)
from transformer_spec.parameters import check_counts, parameter_shapes
from transformer_spec.schedules import WarmupCosine
from transformer_spec.train_config import TrainConfig
from transformer_training.checkpoints import durable, manifest, store
from transformer_training.checkpoints.manifest import Manifest
from transformer_training.checkpoints.store import Saved
from transformer_training.runs.directory import CONFIG, WEIGHTS, RunDirectory
from transformer_training.tasks import Task

# What may change when a run is resumed: none of these is in the formula of an update. `data` is
# where a text lies; its content is checked by its fingerprint.
CHANGEABLE = ("steps", "epochs", "log_every", "eval_every", "save_every", "keep", "compile", "data")
STORED = {"backend", "preset", "init_from", "model", "train", "tokenizer"}


def stored_config(path: str) -> dict[str, Any]:
    """config.json of a run.

    Raises:
        CheckpointError: it cannot be read, or is not the config of a run.
    """
    file = file_inside(existing_directory(path), CONFIG)
    found = read_json(file, MAX_CONFIG)
    if missing := sorted(STORED - set(found)):
        raise CheckpointError(f"{file}: is not that of a run: it has no {', '.join(missing)}")
    return found


def newest(
    directory: RunDirectory, task: Task, config: TrainConfig, say: Callable[[str], None]
) -> Saved:
    """The newest checkpoint that is as it was written; those that are not are reported to `say`.

    They are renamed, and files that a killed run had not finished are removed.

    Raises:
        CheckpointError: there is none.
        ConfigError: it belongs to another config or to other data.
    """
    check_counts(task.model)
    shapes, broken = parameter_shapes(task.model), []
    for path in reversed(store.listed(directory.checkpoints)):
        try:
            check_belongs(manifest.read(path), path, task, config)
            saved = store.read(path, shapes, config.parameter_dtype)
        except CheckpointError as error:
            say(f"{error}; it is not used")
            broken.append(path)
            continue
        directory.clean()
        for other in broken:
            say(f"renamed to {store.set_aside(other)}")
        return saved
    kind = "none of its checkpoints can be used" if broken else "it has no checkpoint yet"
    raise CheckpointError(f"resume: {directory.path}: {kind}; start anew in another directory")


def check_belongs(about: Manifest, path: Path, task: Task, config: TrainConfig) -> None:
    """Refuse a checkpoint that does not belong to this config and this data."""
    theirs = ModelConfig.from_dict(about.model), _trained(about)
    for ours, other in zip((task.model, config), theirs, strict=True):
        pairs = [(f.name, getattr(ours, f.name), getattr(other, f.name)) for f in fields(ours)]
        odd = [
            f"{name} {a} where it was trained with {b}"
            for name, a, b in pairs
            if a != b and not (ours is config and name in CHANGEABLE)
        ]
        if odd:
            raise ConfigError(f"resume: {path}: {CONFIG} has {', '.join(odd)}")
    if about.fingerprint != task.fingerprint:
        raise ConfigError(
            f"data: not what {path} was trained on: sha256 {task.fingerprint}, not "
            f"{about.fingerprint}; give the file as it was, with --data if it lies elsewhere"
        )
    check_length(about, task, config)


def check_length(about: Manifest, task: Task, config: TrainConfig) -> None:
    """Refuse a length that is exceeded already, or that would change the rates of past updates."""
    total, before = (c.total_steps(task.steps_per_epoch) for c in (config, _trained(about)))
    name = "epochs" if config.steps is None else "steps"
    if total < about.step:
        given = getattr(config, name)
        raise ConfigError(f"{name}: {given} is not usable; the run is at update {about.step:,}")
    if isinstance(config.schedule, WarmupCosine) and total != before:
        raise ConfigError(
            f"{name}: cannot change under WarmupCosine: its rates depend on all {before:,} updates"
        )


def is_finished(directory: RunDirectory, saved: Saved, task: Task, total: int) -> bool:
    """Whether all is done: the final weights, which are written last, are of the last update."""
    about, weights = saved.manifest, directory.path / WEIGHTS
    reached = about.step == total == _trained(about).total_steps(task.steps_per_epoch)
    written = {entry["name"]: entry["sha256"] for entry in about.files}
    done = reached and weights.is_file()
    return done and durable.sha256(weights) == written["params.safetensors"]


def _trained(about: Manifest) -> TrainConfig:
    return TrainConfig.from_dict(about.train)
