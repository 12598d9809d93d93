"""The GGUF container: metadata by key and tensors by name, never read past the end of the file.

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
    """A position in a mapped file. Reading past the end raises struct.error."""

    data: mmap.mmap
    offset: int = 0

    def read_number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{code}")
        return value

    def skip(self, count: int) -> int:
        """Skip that many bytes; the offset of the first."""
        start, size = self.offset, len(self.data)
        if count > size - start:
            raise struct.error(f"{count:,} bytes wanted at byte {start:,} of {size:,}")
        self.offset += count
        return start

    def read_text(self) -> str:
        start = self.skip(self.read_number("Q"))
        return self.data[start : self.offset].decode()

    def read_value(self) -> Any:
        """A number or text; None for an array (the tokenizer's lists), which is skipped."""
        kind = self.read_number("I")
        if kind in NUMBERS:
            return self.read_number(NUMBERS[kind])
        if kind == TEXT:
            return self.read_text()
        item, count = self.read_number("I"), self.read_number("Q")
        if kind != ARRAY or item not in (*NUMBERS, TEXT):
            raise ValueError(f"a value has the unknown type {kind} of {item}")
        if item == TEXT:
            for _ in range(count):
                self.skip(self.read_number("Q"))
        else:
            self.skip(count * struct.calcsize(NUMBERS[item]))
        return None


@dataclass(frozen=True)
class _TensorInfo:
    """A tensor's entry: its shape (NumPy's order), type number, and offset after the header."""

    shape: tuple[int, ...]
    kind: int
    offset: int

    @classmethod
    def read(cls, cursor: _Cursor) -> "_TensorInfo":
        axes = cursor.read_number("I")
        if axes > MAX_AXES:
            raise ValueError(f"a tensor of {axes:,} axes; there may be {MAX_AXES}")
        sizes = [cursor.read_number("Q") for _ in range(axes)]
        return cls(tuple(reversed(sizes)), cursor.read_number("I"), cursor.read_number("Q"))


def read(path: Path) -> tuple[dict[str, Any], dict[str, LazyTensor]]:
    """Metadata by key, arrays left out, and tensors by name."""
    gguf = import_library("gguf", path)
    with (
        explained(path, ValueError, struct.error, problem="not a GGUF file, or truncated"),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return _parsed(gguf, path, _Cursor(data))


def _parsed(gguf: Any, path: Path, cursor: _Cursor) -> tuple[dict[str, Any], dict[str, LazyTensor]]:
    if cursor.read_number("4s") != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    if (version := cursor.read_number("I")) not in VERSIONS:
        raise ValueError(f"it has version {version}; only 2 and 3 are read")
    num_tensors, num_values = cursor.read_number("Q"), cursor.read_number("Q")
    metadata = _unique((cursor.read_text(), cursor.read_value()) for _ in range(num_values))
    stored = _unique((cursor.read_text(), _TensorInfo.read(cursor)) for _ in range(num_tensors))
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment}; it must be at least 1")
    end = cursor.offset + -cursor.offset % alignment
    start, size, tensors = end, len(cursor.data), {}
    for name, info in sorted(stored.items(), key=lambda item: item[1].offset):
        begin, row_bytes = start + info.offset, _row_bytes(gguf, name, info)
        nbytes = math.prod(info.shape[:-1]) * row_bytes
        if begin < end or begin + nbytes > size:
            raise ValueError(
                f"{name} lies at {begin:,} with {nbytes:,} bytes, of {size:,} in the file"
            )
        end = begin + nbytes
        tensors[name] = _tensor(gguf, path, begin, row_bytes, info)
    return metadata, tensors


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"two entries are named {name}")
        found[name] = value
    return found


def _row_bytes(gguf: Any, name: str, info: _TensorInfo) -> int:
    """The bytes of one row, which holds whole blocks of quantized numbers."""
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(info.kind)]
    row = info.shape[-1] if info.shape else 1
    if row % block:
        raise ValueError(f"{name} has rows of {row:,}, which blocks of {block} do not fill")
    return row // block * block_bytes


def _tensor(gguf: Any, path: Path, begin: int, row_bytes: int, info: _TensorInfo) -> LazyTensor:
    kind = gguf.GGMLQuantizationType(info.kind)
    if kind.name in PLAIN:
        dtype = DTYPES_BY_NAME[PLAIN[kind.name]]
        return LazyTensor(info.shape, dtype, partial(read_array, path, begin, info.shape, dtype))

    def dequantized() -> np.ndarray:
        packed = read_array(path, begin, (*info.shape[:-1], row_bytes), DTYPES_BY_NAME["uint8"])
        try:
            with np.errstate(
                all="ignore"
            ):  # a broken scale becomes an infinity, which is allowed in any tensor
                return gguf.quants.dequantize(packed, kind).reshape(info.shape)
        except NotImplementedError:
            problem = f"{path}: holds numbers of type {kind.name}"
            raise CheckpointError(f"{problem}, which the gguf library cannot unpack") from None

    return LazyTensor(info.shape, DTYPES_BY_NAME["float32"], dequantized)
