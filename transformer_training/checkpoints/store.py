"""The checkpoints of a run: written, listed, verified, removed."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from transformer_spec import naming
from transformer_spec.files import CheckpointError, explained
from transformer_spec.state import GROUPS, NamedState
from transformer_training.checkpoints import durable, manifest
from transformer_training.checkpoints.arrays import Named, load_arrays, write_arrays
from transformer_training.checkpoints.manifest import Manifest

# Series over all updates so far, in order.
HISTORY, SERIES = "history", ("losses", "accuracies")
# Suffix of a checkpoint that cannot be used; its files stay for inspection.
DAMAGED = ".damaged"


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read, and is as it was written."""

    path: Path
    manifest: Manifest
    state: NamedState
    history: Named


def path_of(parent: Path, step: int) -> Path:
    return parent / f"step-{step:08}"


def step_of(path: Path) -> int | None:
    """The step of a checkpoint's path; None for any other path, such as an incomplete one."""
    found = re.fullmatch(r"step-(\d{8,})", path.name)
    return int(found[1]) if found else None


def listed(parent: Path) -> list[Path]:
    """The checkpoints of a run, the newest last, whether they are whole or not."""
    found = {step: p for p in _entries(parent) if (step := step_of(p)) is not None}
    return [found[step] for step in sorted(found)]


def write(parent: Path, about: Manifest, state: NamedState, history: Named) -> Path:
    """Write a checkpoint whole, or nothing.

    Files are written and synced under a temporary name beside the last; the directory is synced,
    renamed, and its parent synced.

    Raises:
        SaveError: the system refuses. What was written of it is removed.
    """
    path = path_of(parent, about.step)
    partial = durable.partial_path(path)
    with durable.saving(path):
        try:
            remove(partial)
            partial.mkdir(parents=True)
            groups = state.groups() | {HISTORY: history}
            files = [_write_file(partial, name, named) for name, named in groups.items()]
            text = manifest.render(replace(about, files=files))
            durable.write(partial / manifest.NAME, text)
            durable.sync(partial)
            _publish(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return path


def _write_file(directory: Path, name: str, named: Named) -> dict[str, Any]:
    path = directory / f"{name}.safetensors"
    write_arrays(path, named)
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": durable.sha256(path)}


def _publish(partial: Path, path: Path) -> None:
    """Give a checkpoint its name, in place of one that a run had before it was resumed."""
    old = durable.partial_path(path.with_name(path.name + ".old"))
    remove(old)
    if path.exists():
        path.replace(old)
    durable.rename(partial, path)
    remove(old)


def read(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> Saved:
    """Read and verify a checkpoint of a model with these parameters.

    Raises:
        CheckpointError: a file is missing, or is not the one that was written; the message names
            it with what is found and what was expected. Or the state is another model's.
    """
    about = manifest.read(path)
    if about.step != step_of(path):
        raise CheckpointError(f"{path}: damaged: it holds step {about.step}")
    named = {entry["name"]: _read_file(path, entry) for entry in about.files}
    try:
        groups = [named[f"{name}.safetensors"] for name in (*GROUPS, HISTORY)]
    except KeyError as error:
        raise CheckpointError(f"{path}: lists no file {error}") from None
    key = np.array(about.dropout_key, np.uint32)
    state, history = NamedState(about.step, key, *groups[:-1]), groups[-1]
    try:
        state.check(shapes, dtype)
        naming.check_named(history, dict.fromkeys(SERIES, (about.step,)))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return Saved(path, about, state, history)


def read_history(path: Path) -> Named:
    """Loss and accuracy of every update up to a checkpoint, of which no other file is read.

    Raises:
        CheckpointError: it is not as it was written.
    """
    about, name = manifest.read(path), f"{HISTORY}.safetensors"
    for entry in about.files:
        if entry["name"] == name:
            history = _read_file(path, entry)
            with explained(path / name, ValueError, problem="damaged"):
                naming.check_named(history, dict.fromkeys(SERIES, (about.step,)))
            return history
    raise CheckpointError(f"{path}: lists no file {name!r}")


def _read_file(directory: Path, entry: dict[str, Any]) -> Named:
    path = directory / entry["name"]
    if not path.is_file():
        raise CheckpointError(f"{path}: damaged: no such file")
    with explained(path, ValueError, problem="damaged"):
        if (size := path.stat().st_size) != entry["bytes"]:
            raise CheckpointError(f"{path}: damaged: {size:,} bytes, not {entry['bytes']:,}")
        if (found := durable.sha256(path)) != entry["sha256"]:
            raise CheckpointError(f"{path}: damaged: sha256 {found}, not {entry['sha256']}")
        return load_arrays(path)


def prune(parent: Path, keep: int, best: int | None) -> None:
    """Remove all but the newest `keep` checkpoints and that of step `best`.

    Raises:
        SaveError: the system refuses.
    """
    for path in listed(parent)[:-keep]:
        if step_of(path) != best:
            with durable.saving(path, "removed"):
                remove(path)


def set_aside(path: Path) -> Path:
    """Rename a checkpoint that cannot be used; its files stay for inspection."""
    aside = path.with_name(path.name + DAMAGED)
    with durable.saving(path, "renamed"):
        remove(aside)
        durable.rename(path, aside)
    return aside


def clean(parent: Path) -> list[Path]:
    """Remove what is incomplete."""
    found = [path for path in _entries(parent) if path.name.endswith(durable.PARTIAL)]
    for path in found:
        with durable.saving(path, "removed"):
            remove(path)
    return found


def remove(path: Path) -> None:
    """Remove a file or directory, if there is one; its name goes first, so none is half removed."""
    if path.is_dir():
        doomed = path if path.name.endswith(durable.PARTIAL) else durable.partial_path(path)
        if doomed != path:
            shutil.rmtree(doomed, ignore_errors=True)
            path.replace(doomed)
        shutil.rmtree(doomed)
    else:
        path.unlink(missing_ok=True)


def _entries(parent: Path) -> list[Path]:
    with explained(parent):
        return list(parent.iterdir()) if parent.is_dir() else []
