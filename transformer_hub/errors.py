"""One-line errors for checkpoints that cannot be used."""

import importlib
from pathlib import Path
from typing import Any

from transformer_spec.files import CheckpointError, explained, first_line

__all__ = ["CheckpointError", "explained", "first_line", "import_library"]


def import_library(name: str, path: Path) -> Any:
    """Import an optional library that this file needs."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CheckpointError(f"{path}: needs {name} to be read; pip install {name}") from None
