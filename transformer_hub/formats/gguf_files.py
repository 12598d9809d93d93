"""The container of GGUF files: values by key, tensors by name, all within the file's bounds.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The library `gguf` knows the
quantizations. Its own reader steps through an array past the end of the file (gguf 0.19), so that
57 bytes can take all memory; it is not used.
"""

import math
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub.errors import CheckpointError, explained, import_library
from transformer_hub.formats.lazy_tensor import DTYPES_BY_NAME, LazyTensor, read_array

VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_AXES = 4
# Types of values by number: numbers, text, arrays.
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
TEXT, ARRAY = 8, 9
# Tensors of these types are kept as they are; all others are quantized, and become float32.
PLAIN = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass
class _Cursor:
    """A place in a mapped file. Reading past the end raises struct.error."""

    data: mmap.mmap
    at: int = 0

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def skip(self, count: int) -> int:
        """Step over that many bytes; where they begin."""
        start, size = self.at, len(self.data)
        if count > size - start:
            raise struct.error(f"{count:,} bytes wanted at byte {start:,} of {size:,}")
        self.at += count
        return start

    def text(self) -> str:
        start = self.skip(self.number("Q"))
        return self.data[start : self.at].decode()

    def value(self) -> Any:
        """A number or text; None for an array (the tokenizer's lists), which is stepped over."""
        kind = self.number("I")
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == TEXT:
            return self.text()
        item, count = self.number("I"), self.number("Q")
        if kind != ARRAY or item not in (*NUMBERS, TEXT):
            raise ValueError(f"a value of type {kind} of {item}")
        if item == TEXT:
            for _ in range(count):
                self.skip(self.number("Q"))
        else:
            self.skip(count * struct.calcsize(NUMBERS[item]))
        return None


@dataclass(frozen=True)
class _Stored:
    """Where a tensor lies: its sizes (NumPy's order), type by number, bytes after the header."""

    shape: tuple[int, ...]
    kind: int
    offset: int

    @classmethod
    def read(cls, cursor: _Cursor) -> "_Stored":
        axes = cursor.number("I")
        if axes > MAX_AXES:
            raise ValueError(f"a tensor of {axes:,} axes, {MAX_AXES} at most")
        sizes = [cursor.number("Q") for _ in range(axes)]
        return cls(tuple(reversed(sizes)), cursor.number("I"), cursor.number("Q"))


def read(path: Path) -> tuple[dict[str, Any], dict[str, LazyTensor]]:
    """Metadata by key, arrays left out, and tensors by name."""
    gguf = import_library("gguf", path)
    with (
        explained(path, ValueError, struct.error, problem="no GGUF file, or truncated"),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return _parsed(gguf, path, _Cursor(data))


def _parsed(gguf: Any, path: Path, cursor: _Cursor) -> tuple[dict[str, Any], dict[str, LazyTensor]]:
    if cursor.number("4s") != b"GGUF":
        raise ValueError("it begins otherwise")
    if (version := cursor.number("I")) not in VERSIONS:
        raise ValueError(f"version {version}, not 2 or 3")
    num_tensors, num_values = cursor.number("Q"), cursor.number("Q")
    metadata = _named((cursor.text(), cursor.value()) for _ in range(num_values))
    stored = _named((cursor.text(), _Stored.read(cursor)) for _ in range(num_tensors))
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment {alignment}")
    end = cursor.at + -cursor.at % alignment
    start, size, tensors = end, len(cursor.data), {}
    for name, where in sorted(stored.items(), key=lambda item: item[1].offset):
        begin, row_bytes = start + where.offset, _row_bytes(gguf, name, where)
        nbytes = math.prod(where.shape[:-1]) * row_bytes
        if begin < end or begin + nbytes > size:
            raise ValueError(f"{name} at {begin:,} with {nbytes:,} bytes of {size:,}")
        end = begin + nbytes
        tensors[name] = _tensor(gguf, path, begin, row_bytes, where)
    return metadata, tensors


def _named(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"two of the name {name}")
        found[name] = value
    return found


def _row_bytes(gguf: Any, name: str, where: _Stored) -> int:
    """The bytes of one row, which holds whole blocks of quantized numbers."""
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(where.kind)]
    row = where.shape[-1] if where.shape else 1
    if row % block:
        raise ValueError(f"{name} has rows of {row:,}, in blocks of {block}")
    return row // block * block_bytes


def _tensor(gguf: Any, path: Path, begin: int, row_bytes: int, where: _Stored) -> LazyTensor:
    kind = gguf.GGMLQuantizationType(where.kind)
    if kind.name in PLAIN:
        dtype = DTYPES_BY_NAME[PLAIN[kind.name]]
        return LazyTensor(where.shape, dtype, partial(read_array, path, begin, where.shape, dtype))

    def dequantized() -> np.ndarray:
        packed = read_array(path, begin, (*where.shape[:-1], row_bytes), DTYPES_BY_NAME["uint8"])
        try:
            with np.errstate(all="ignore"):  # a broken scale is an infinity here, as anywhere
                return gguf.quants.dequantize(packed, kind).reshape(where.shape)
        except NotImplementedError:
            problem = f"{path}: holds numbers of type {kind.name}"
            raise CheckpointError(f"{problem}, which the gguf library cannot unpack") from None

    return LazyTensor(where.shape, DTYPES_BY_NAME["float32"], dequantized)
