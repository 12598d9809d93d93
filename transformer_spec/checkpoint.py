"""Named arrays on disk as safetensors, for either backend. No pickle anywhere."""

import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file


def save_arrays(path: Path, named: dict[str, np.ndarray]) -> None:
    """Write under a temporary name, then rename: a reader finds the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    save_file({name: np.ascontiguousarray(array) for name, array in named.items()}, partial)
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file.

    Raises:
        ValueError: the file is missing, truncated or no safetensors file; the message names it.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors: {error}") from None
