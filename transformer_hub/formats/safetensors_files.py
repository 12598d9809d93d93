"""Tensors in safetensors files: read one by one, written whole or in shards."""

import json
import math
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transformer_hub.errors import CheckpointError, explained
from transformer_hub.formats.lazy_tensor import DTYPES, LazyTensor, read_array

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Room for 100,000 tensors in one file; the format's own limit is 100 MB.
MAX_HEADER = 2**24
LENGTH = struct.Struct("<Q")


def read(path: Path) -> dict[str, LazyTensor]:
    """The tensors of a file: 8 bytes of length, a header of that length in JSON, then their bytes.

    The library checks the header: that each tensor has the bytes of its shape and dtype, and that
    they cover the file without gap or overlap. The tensors it returns lie in a mapped file, whose
    pages would count beside every copy; so their bytes are read here instead.
    """
    start, entries = _read_header(path)
    return {name: _tensor(path, start, name, entry) for name, entry in entries.items()}


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """The offset of the tensors' bytes, and the entry of each tensor."""
    problem = "not a safetensors file, or truncated"
    with (
        explained(path, SafetensorError, struct.error, problem=problem),
        open(path, "rb") as file,
    ):
        (length,) = LENGTH.unpack(file.read(LENGTH.size))
        if length > MAX_HEADER:
            limit = f"{MAX_HEADER:,} bytes at most"
            raise CheckpointError(f"{path}: {problem}: a header of {length:,} bytes; {limit}")
        with safe_open(path, "np"):
            entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return LENGTH.size + length, entries


def _tensor(path: Path, start: int, name: str, entry: dict) -> LazyTensor:
    shape, code = tuple(entry["shape"]), entry["dtype"]
    if code not in DTYPES:
        raise CheckpointError(f"{path}: {name} has dtype {code}; it must be {', '.join(DTYPES)}")
    offset = start + entry["data_offsets"][0]
    return LazyTensor(shape, DTYPES[code], partial(read_array, path, offset, shape, DTYPES[code]))


def write(
    directory: Path, named: Iterable[tuple[str, np.ndarray]], max_shard_bytes: float = math.inf
) -> None:
    """Write model.safetensors; or, above the limit, shards of at most that size and their index.

    Files get their names once all of them are whole. A tensor above the limit has its own shard.
    """
    partial_files, shards, total = [], [], 0
    for shard in _shards(named, max_shard_bytes):
        partial_files.append(directory / f"{len(shards) + 1:05}.partial")
        # transformers opens no file that does not name its format.
        save_file(shard, partial_files[-1], metadata={"format": "pt"})
        shards.append(list(shard))
        total += sum(array.nbytes for array in shard.values())
    count = len(shards)
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    names = names if count > 1 else [SINGLE]
    for file, name in zip(partial_files, names, strict=True):
        file.replace(directory / name)
    if count > 1:
        weight_map = {
            tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard
        }
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _shards(
    named: Iterable[tuple[str, np.ndarray]], max_shard_bytes: float
) -> Iterator[dict[str, np.ndarray]]:
    shard: dict[str, np.ndarray] = {}
    for name, array in named:
        if shard and sum(a.nbytes for a in shard.values()) + array.nbytes > max_shard_bytes:
            yield shard
            shard = {}
        shard[name] = np.ascontiguousarray(array)
    yield shard
