"""Files of unknown origin: none outside of their directory, none read without a limit."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_spec.fields import one_line

# No published config.json is above 100 kB; the largest indices have some 100,000 tensors.
MAX_CONFIG, MAX_INDEX = 2**20, 2**25


class CheckpointError(ValueError):
    """A checkpoint that cannot be used. One line: the file or tensor, and what would be right."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class where it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@contextmanager
def explained(path: Path, *kinds: type[Exception], problem: str = "") -> Iterator[None]:
    """Turn OSError, and the errors of `kinds`, into a CheckpointError that names the file."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or first_line(error)}") from None
    except kinds as error:
        raise CheckpointError(f"{path}: {problem}: {first_line(error)}") from None


def file_inside(directory: Path, name: str) -> Path:
    """The regular file `name` of a directory.

    Raises:
        CheckpointError: it is missing, is no regular file, or lies elsewhere, be it by its name or
            by a symbolic link. A checkpoint of unknown origin could name any file of this machine.
    """
    path = directory / name
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise CheckpointError(
            f"{directory}: names the file {name!r}; it may only name files in the same directory"
        )
    with explained(path):
        target = Path(os.path.realpath(path, strict=True))
    if not target.is_relative_to(directory.resolve()):
        raise CheckpointError(
            f"{path}: is a link out of its directory, as in the hub's cache; make a copy without "
            "links (hf download NAME --local-dir DIR, or cp -rL) and give that"
        )
    return regular_file(path)


def regular_file(path: Path) -> Path:
    """`path`, if it is a regular file that is not empty."""
    with explained(path):
        if not path.is_file():
            raise CheckpointError(f"{path}: is not a regular file; give a file")
        if not path.stat().st_size:
            raise CheckpointError(f"{path}: is empty; download it again")
    return path


def read_json(path: Path, limit: int) -> dict[str, Any]:
    """The JSON object of a file of at most `limit` bytes."""
    with explained(path), open(path, "rb") as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise CheckpointError(
            f"{path}: is larger than {limit:,} bytes; it must be a small JSON object"
        )
    try:
        found = json.loads(text, parse_int=_int64)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is not valid JSON; download it again") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: holds a {type(found).__name__}; it must be a JSON object")
    return found


def _int64(digits: str) -> int:
    """An integer of 64 bits: any larger one fails where it becomes a float, or an array."""
    if abs(value := int(digits)) >= 2**63:
        raise ValueError(f"{value} does not fit in 64 bits")
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
    """A directory to write to: created if it does not exist, refused if it holds anything."""
    directory = Path(path)
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise CheckpointError(f"{path}: already holds files; give a new or empty directory")
    return directory
