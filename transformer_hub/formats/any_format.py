"""The config and the tensors that a path holds, whatever the format of its files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transformer_hub.errors import CheckpointError, explained
from transformer_hub.formats import flax_files, gguf_llama, safetensors_files, torch_files
from transformer_hub.formats.lazy_tensor import LazyTensor
from transformer_spec.files import (
    MAX_CONFIG,
    MAX_INDEX,
    existing_directory,
    file_inside,
    read_json,
    regular_file,
)

CONFIG = "config.json"
Reader = Callable[[Path], dict[str, LazyTensor]]
# The file of all tensors, the index of its shards, and who reads them; the first found is taken.
FORMATS: tuple[tuple[str, str | None, Reader], ...] = (
    (safetensors_files.SINGLE, safetensors_files.INDEX, safetensors_files.read),
    (torch_files.SINGLE, torch_files.INDEX, torch_files.read),
    (flax_files.SINGLE, None, flax_files.read),
)


class StoredModel(NamedTuple):
    """What was found at a path.

    Attributes:
        config: the content of config.json.
        files: those that hold the tensors.
        tensors: by the names they are stored under.
    """

    config: dict[str, Any]
    files: tuple[Path, ...]
    tensors: dict[str, LazyTensor]


def open_stored(path: str | Path) -> StoredModel:
    """The content of a directory or of a GGUF file.

    Raises:
        CheckpointError: a file is missing, broken, or outside of the directory.
    """
    path = Path(path)
    _check_exists(path)
    if path.suffix == gguf_llama.SUFFIX and not path.is_dir():
        return _open_gguf(regular_file(path))
    directory = existing_directory(path)
    for single, index, read in FORMATS:
        if os.path.lexists(directory / single):
            file = file_inside(directory, single)
            return StoredModel(_config(directory), (file,), read(file))
        if index and os.path.lexists(directory / index):
            return StoredModel(_config(directory), *_sharded(directory, index, read))
    return _open_gguf(_only_gguf(directory))


def _check_exists(path: Path) -> None:
    with explained(path):
        if not path.exists():
            raise CheckpointError(
                f"{path}: does not exist, and nothing is downloaded; give a directory with a "
                "config.json and weights, such as hf download NAME --local-dir DIR leaves, or a "
                "GGUF file"
            )


def _open_gguf(path: Path) -> StoredModel:
    config, tensors = gguf_llama.read(path)
    return StoredModel(config, (path,), tensors)


def _config(directory: Path) -> dict[str, Any]:
    return read_json(file_inside(directory, CONFIG), MAX_CONFIG)


def _only_gguf(directory: Path) -> Path:
    suffix = gguf_llama.SUFFIX
    with explained(directory):
        found = sorted(entry.name for entry in directory.iterdir() if entry.suffix == suffix)
    if len(found) != 1:
        singles = ", ".join(single for single, _, _ in FORMATS)
        kind = f"{len(found)} GGUF files, give the path of one" if found else "no weights"
        raise CheckpointError(f"{directory}: holds {kind}; expected {singles} or one *.gguf")
    return file_inside(directory, found[0])


def _sharded(
    directory: Path, index: str, read: Reader
) -> tuple[tuple[Path, ...], dict[str, LazyTensor]]:
    """Shards, each of which holds exactly the tensors that the index says."""
    weight_map = _weight_map(file_inside(directory, index))
    expected: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        expected.setdefault(shard, set()).add(tensor)
    files = {shard: file_inside(directory, shard) for shard in sorted(expected)}
    tensors: dict[str, LazyTensor] = {}
    for shard, file in files.items():
        found = read(file)
        _check_shard(file, index, set(found), expected[shard])
        tensors |= found
    return tuple(files.values()), tensors


def _weight_map(path: Path) -> dict[str, str]:
    weight_map = read_json(path, MAX_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
        raise CheckpointError(f"{path}: weight_map must be an object: tensor name -> file name")
    return weight_map


def _check_shard(file: Path, index: str, found: set[str], expected: set[str]) -> None:
    faults = [f"lacks {name}" for name in sorted(expected - found)]
    faults += [f"also holds {name}" for name in sorted(found - expected)]
    if faults:
        raise CheckpointError(f"{file}: does not match {index}: {', '.join(faults)}")
