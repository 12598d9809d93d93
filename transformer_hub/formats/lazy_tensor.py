"""Stored tensors: their name, shape and dtype are known before any of their data is read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from transformer_hub.errors import CheckpointError, explained

# The dtypes that are read, by their codes in safetensors files. All are stored little-endian.
DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
DTYPES_BY_NAME = {dtype.name: dtype for dtype in DTYPES.values()}


@dataclass(frozen=True)
class LazyTensor:
    """A tensor of a file: `read()` returns its array, in the dtype and layout it is stored in."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


Tensors = Mapping[str, LazyTensor]


def read_array(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of a file's raw bytes. It is read, not mapped: no page of the file stays behind.

    Raises:
        CheckpointError: the file ends before the array does.
    """
    count = math.prod(shape)
    with explained(path):
        array = np.fromfile(path, dtype, count, offset=offset)
    if array.size != count:
        raise CheckpointError(f"{path}: became shorter while it was read; download it again")
    return array.reshape(shape)
