"""Paths and JSON of a checkpoint: nothing outside of its directory, nothing without a limit."""

import json
import os
import re
from pathlib import Path
from typing import Any

from transformer_hub.errors import CheckpointError, explained

# No published config.json is above 100 kB; the largest indices have some 100,000 tensors.
MAX_CONFIG, MAX_INDEX = 2**20, 2**25


def inside(directory: Path, name: str) -> Path:
    """The regular file `name` of a directory.

    Raises:
        CheckpointError: it is missing, no regular file, or lies elsewhere, be it by its name or by
            a symbolic link. A checkpoint of unknown origin could name any file of this machine.
    """
    path = directory / name
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise CheckpointError(f"{directory}: names {name!r}; it may name files beside it alone")
    with explained(path):
        target = Path(os.path.realpath(path, strict=True))
    if not target.is_relative_to(directory.resolve()):
        raise CheckpointError(
            f"{path}: is a link out of its directory, as in the hub's cache; make a copy without "
            "links (hf download NAME --local-dir DIR, or cp -rL) and give that"
        )
    return regular(path)


def regular(path: Path) -> Path:
    """`path`, a regular file and not empty."""
    with explained(path):
        if not path.is_file():
            raise CheckpointError(f"{path}: is no regular file; give a file")
        if not path.stat().st_size:
            raise CheckpointError(f"{path}: is empty; fetch it again")
    return path


def read_json(path: Path, limit: int) -> dict[str, Any]:
    """The JSON object of a file of at most `limit` bytes."""
    with explained(path), open(path, "rb") as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise CheckpointError(f"{path}: is above {limit:,} bytes; it must be a small JSON object")
    try:
        found = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is no JSON that can be read; fetch it again") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: holds a {type(found).__name__}; it must be a JSON object")
    return found


def _integer(digits: str) -> int:
    """A whole number of 64 bits: any larger one fails where it becomes a float, or an array."""
    if abs(value := int(digits)) >= 2**63:
        raise ValueError(f"{value} is above 64 bits")
    return value


def existing_directory(path: str | Path) -> Path:
    """A directory to read from."""
    directory = Path(path)
    with explained(directory):
        if not directory.is_dir():
            kind = "is a file" if directory.exists() else "does not exist"
            raise CheckpointError(f"{path}: {kind}; give a directory that holds a config.json")
    return directory


def new_directory(path: str | Path) -> Path:
    """A directory to write to: made if need be, refused if it holds anything."""
    directory = Path(path)
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise CheckpointError(f"{path}: already holds files; give a new or empty directory")
    return directory
