"""One-line errors for checkpoints that cannot be used."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_spec.fields import one_line


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


def import_library(name: str, path: Path) -> Any:
    """Import an optional library that this file needs."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CheckpointError(f"{path}: needs {name} to be read; pip install {name}") from None
