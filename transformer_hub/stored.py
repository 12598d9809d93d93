"""The tensors that a directory holds, whatever the format of its files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformer_hub import flax_files, gguf, safetensors_files, torch_files
from transformer_hub.errors import CheckpointError, explained
from transformer_hub.files import (
    MAX_CONFIG,
    MAX_INDEX,
    existing_directory,
    inside,
    read_json,
    regular,
)
from transformer_hub.lazy import LazyTensor

CONFIG = "config.json"
Reader = Callable[[Path], dict[str, LazyTensor]]
# The file of all tensors, the index of its shards, and who reads them; the first found is taken.
FORMATS: tuple[tuple[str, str | None, Reader], ...] = (
    (safetensors_files.SINGLE, safetensors_files.INDEX, safetensors_files.read),
    (torch_files.SINGLE, torch_files.INDEX, torch_files.read),
    (flax_files.SINGLE, None, flax_files.read),
)
Stored = tuple[dict[str, Any], tuple[Path, ...], dict[str, LazyTensor]]


def open_stored(path: str | Path) -> Stored:
    """Config, files and tensors of a directory or of a GGUF file.

    Raises:
        CheckpointError: a file is missing, broken, or outside of the directory.
    """
    path = Path(path)
    if path.suffix == gguf.SUFFIX and not path.is_dir():
        return _open_gguf(regular(path))
    directory = existing_directory(path)
    for single, index, read in FORMATS:
        if os.path.lexists(directory / single):
            file = inside(directory, single)
            return _config(directory), (file,), read(file)
        if index and os.path.lexists(directory / index):
            return _config(directory), *_sharded(directory, index, read)
    return _open_gguf(_only_gguf(directory))


def _open_gguf(path: Path) -> Stored:
    config, tensors = gguf.read(path)
    return config, (path,), tensors


def _config(directory: Path) -> dict[str, Any]:
    return read_json(inside(directory, CONFIG), MAX_CONFIG)


def _only_gguf(directory: Path) -> Path:
    with explained(directory):
        found = sorted(entry.name for entry in directory.iterdir() if entry.suffix == gguf.SUFFIX)
    if len(found) != 1:
        singles = ", ".join(single for single, _, _ in FORMATS)
        kind = f"{len(found)} GGUF files, give the path of one" if found else "no weights"
        raise CheckpointError(f"{directory}: holds {kind}; expected {singles} or one *.gguf")
    return inside(directory, found[0])


def _sharded(
    directory: Path, index: str, read: Reader
) -> tuple[tuple[Path, ...], dict[str, LazyTensor]]:
    """Shards, each of which holds exactly the tensors that the index says."""
    weight_map = _weight_map(inside(directory, index))
    expected: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        expected.setdefault(shard, set()).add(tensor)
    files = {shard: inside(directory, shard) for shard in sorted(expected)}
    tensors: dict[str, LazyTensor] = {}
    for shard, file in files.items():
        found = read(file)
        _check_shard(file, index, set(found), expected[shard])
        tensors |= found
    return tuple(files.values()), tensors


def _weight_map(path: Path) -> dict[str, str]:
    weight_map = read_json(path, MAX_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
        raise CheckpointError(f"{path}: weight_map must be an object of file names by tensor")
    return weight_map


def _check_shard(file: Path, index: str, found: set[str], expected: set[str]) -> None:
    faults = [f"lacks {name}" for name in sorted(expected - found)]
    faults += [f"holds {name} as well" for name in sorted(found - expected)]
    if faults:
        raise CheckpointError(f"{file}: is not what {index} says: {', '.join(faults)}")
