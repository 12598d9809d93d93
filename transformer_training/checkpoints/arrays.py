"""Named arrays in one safetensors file."""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from transformer_training.checkpoints import durable

Named = dict[str, np.ndarray]


def save_arrays(path: Path, named: Named) -> None:
    """Write under a temporary name, then rename: a reader finds the old file or the new one."""
    partial = durable.partial_path(path)
    try:
        write_arrays(partial, named)
        durable.rename(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_arrays(path: Path, named: Named) -> None:
    """Write a file, and wait until it is on the disk."""
    save_file({name: np.ascontiguousarray(array) for name, array in named.items()}, path)
    durable.sync(path)


def load_arrays(path: Path) -> Named:
    """The arrays of a safetensors file.

    Raises:
        ValueError: the file is missing, truncated or no safetensors file; the message names it.
    """
    try:
        return load_file(path)
    # The last two are of a dtype that NumPy has not, such as F8_E4M3.
    except (OSError, SafetensorError, AttributeError, KeyError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors: {error}") from None
