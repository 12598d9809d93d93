"""Parameters in `flax_model.msgpack`, read under torch's names and in torch's layout."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub.errors import explained, import_library
from transformer_hub.formats.lazy_tensor import DTYPES_BY_NAME, LazyTensor
from transformer_spec import naming

SINGLE = "flax_model.msgpack"
CHUNKED = "__msgpack_chunked_array__"
# The extension types of flax.serialization that hold arrays: ndarray and a NumPy scalar.
ARRAYS = (1, 3)
# A shape has no more sizes than NumPy has axes, and no layer this many parameters.
MAX_AXES, MAX_ENTRIES = 64, 2**16


def read(path: Path) -> dict[str, LazyTensor]:
    """The parameters of a Linen model as `transformers` wrote them up to version 4.

    Names are the path joined with dots; of the leaves, `kernel` is `weight` transposed, `embedding`
    and `scale` are `weight`. That holds for GPT-2's `FlaxConv1D` too: its kernel is [out, in] where
    torch's `Conv1D` has [in, out] (transformers 4.57, `models/gpt2/modeling_flax_gpt2.py`).

    The format has no index, so all arrays are read at once.
    """
    msgpack = import_library("msgpack", path)
    refused = (ValueError, KeyError, TypeError, RecursionError, msgpack.exceptions.UnpackException)
    with explained(path, *refused, problem="not a checkpoint of Flax, or truncated"):
        leaves = dict(naming.walk(_tree(msgpack, path)))
        return {_name(keys): _tensor(keys, array) for keys, array in leaves.items()}


def _tree(msgpack: Any, path: Path) -> Mapping[str, Any]:
    """The nested arrays of a file, read as a stream: no length in it may exceed the file's own."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        unpacker = msgpack.Unpacker(
            file,
            read_size=min(size, 2**20),
            max_buffer_size=size,
            max_array_len=0,
            max_map_len=MAX_ENTRIES,
            ext_hook=partial(_array, msgpack),
            object_hook=_unchunked,
        )
        tree = unpacker.unpack()
    if unpacker.tell() != size:
        raise ValueError(f"{size - unpacker.tell():,} bytes are left over")
    if not isinstance(tree, Mapping):
        raise ValueError(f"a {type(tree).__name__} instead of named parameters")
    return tree


def _array(msgpack: Any, code: int, data: bytes) -> np.ndarray:
    """An array as flax.serialization packs it: (shape, name of the dtype, bytes)."""
    if code not in ARRAYS:
        raise ValueError(f"an extension of type {code} instead of an array")
    shape, dtype, content = msgpack.unpackb(data, max_array_len=MAX_AXES, max_map_len=0)
    return np.frombuffer(content, DTYPES_BY_NAME[dtype]).reshape(shape)


def _unchunked(entries: dict[str, Any]) -> Any:
    """An array of more than 1 GiB, which is stored flat and in pieces; else the entries."""
    if CHUNKED not in entries:
        return entries
    return np.concatenate(_items(entries["chunks"])).reshape(_items(entries["shape"]))


def _items(numbered: dict[str, Any]) -> list[Any]:
    return [numbered[str(i)] for i in range(len(numbered))]


def _name(keys: tuple[str, ...]) -> str:
    # Here `_0` does not number the items of a list, as Linen's `layers_0` does: T5 has a `wi_0`.
    return ".".join((*keys[:-1], naming.dotted(keys[-1:])))


def _tensor(keys: tuple[str, ...], array: Any) -> LazyTensor:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{'.'.join(keys)} is a {type(array).__name__} instead of an array")
    laid_out = naming.to_other_layout(keys, array)
    return LazyTensor(laid_out.shape, laid_out.dtype, lambda: laid_out)
