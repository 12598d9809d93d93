"""Files and directories that are whole or absent after a crash: synced first, then renamed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

# Files and directories with this suffix are incomplete.
PARTIAL = ".partial"


class SaveError(RuntimeError):
    """A file that cannot be written. One line: the path, and the reason that the system gives."""


@contextmanager
def saving(path: Path, act: str = "written") -> Iterator[None]:
    """Turn an error of the system while `path` is written into a SaveError that names it."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SaveError(f"{path}: cannot be {act}: {reason}") from None


def partial_path(path: Path) -> Path:
    """Where `path` is written before it is renamed."""
    return path.with_name(path.name + PARTIAL)


def write(path: Path, data: bytes) -> None:
    """Write a file, and wait until it is on the disk."""
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
    """Wait until the content of a file, or the names in a directory, are on the disk."""
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
