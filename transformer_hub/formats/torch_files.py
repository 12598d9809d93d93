"""Tensors in files of torch.save. These are pickles: read without running code, or refused."""

import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub.errors import CheckpointError, explained, first_line, import_library
from transformer_hub.formats.lazy_tensor import DTYPES_BY_NAME, LazyTensor

SINGLE, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def read(path: Path) -> dict[str, LazyTensor]:
    """The tensors of a state dict; those of an archive are memory-mapped."""
    torch = import_library("torch", path)
    state = _load(torch, path)
    if not isinstance(state, dict):
        kind = type(state).__name__
        raise CheckpointError(f"{path}: holds a {kind}; it must be a dict of named tensors")
    return {name: _tensor(torch, path, name, value) for name, value in state.items()}


def _is_archive(path: Path) -> bool:
    """Whether it is a zip archive, as torch writes since 1.6; a compressed one is refused."""
    odd = (zipfile.BadZipFile, NotImplementedError, ValueError)
    with explained(path, *odd, problem="is a broken archive"):
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > path.stat().st_size:
        raise CheckpointError(
            f"{path}: is compressed, which torch.save never does; save it again with torch.save"
        )
    return True


def _load(torch: Any, path: Path) -> Any:
    """The content of a pickle of plain values and tensors; any other is refused and not run."""
    mapped = _is_archive(path)
    try:
        with warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a broken file can make torch's reader fail in any way
        reason = first_line(error).split(". ")[0]
        raise CheckpointError(
            f"{path}: holds more than tensors, or is truncated ({reason}); no code in it was "
            "run; give a file that holds tensors only, best as safetensors"
        ) from None


def _tensor(torch: Any, path: Path, name: Any, value: Any) -> LazyTensor:
    problem = f"{path}: {name!r} is"
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        raise CheckpointError(f"{problem} a {type(value).__name__}; it must be a named tensor")
    dtype = DTYPES_BY_NAME.get(str(value.dtype).removeprefix("torch."))
    if dtype is None or value.layout != torch.strided or value.device.type != "cpu":
        kind = f"{value.layout}, {value.dtype}, {value.device}"
        raise CheckpointError(f"{problem} a tensor of {kind}; it must be a plain dense tensor")
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise CheckpointError(
            f"{problem} larger than what the file stores of it; it must be contiguous"
        )
    plain = value.detach().resolve_neg()
    return LazyTensor(tuple(value.shape), dtype, partial(_array, torch, plain, dtype))


def _array(torch: Any, tensor: Any, dtype: np.dtype) -> np.ndarray:
    """NumPy has no bfloat16 of its own, so torch hands out its bits."""
    if dtype == DTYPES_BY_NAME["bfloat16"]:
        return tensor.view(torch.int16).numpy().view(dtype)
    return tensor.numpy()
