"""Files and directories that are whole or absent after a crash: synced first, then renamed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

# What ends in this was not written to the end.
PARTIAL = ".partial"


class SaveError(RuntimeError):
    """What cannot be written. One line: the path, and the reason that the system gives."""


@contextmanager
def saving(path: Path, act: str = "written") -> Iterator[None]:
    """What the system says against writing `path`, as a SaveError."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SaveError(f"{path}: cannot be {act}: {reason}") from None


def partial_path(path: Path) -> Path:
    """Where `path` is written before it bears its name."""
    return path.with_name(path.name + PARTIAL)


def write(path: Path, data: bytes) -> None:
    """Write a file, and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes) -> None:
    """Write a file of which a reader finds the old content or the new one."""
    partial = partial_path(path)
    try:
        write(partial, data)
        rename(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def rename(partial: Path, path: Path) -> None:
    """Give a synced file or directory its name."""
    partial.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until the disk has what was written to a file, or the names in a directory."""
    if os.name == "nt" and path.is_dir():  # Windows opens no directories
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
