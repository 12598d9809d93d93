"""The line of the user's code that asked for an operation."""

import linecache
import os
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

# Frames of these are the library's own business; transformers, say, is a user's model.
_LIBRARIES = (
    *("torch", "functorch", "jax", "jaxlib", "flax", "haiku", "equinox", "optax", "numpy"),
    *("jaxtyping", "beartype", "einops", "chex", "parity"),
)
_STANDARD = str(Path(sysconfig.get_paths()["stdlib"]).resolve())
# With its separator: a user may well have a folder called parity_something beside it.
_PARITY = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_RECORDER = f"{Path(__file__).resolve().parent}{os.sep}"


@cache
def is_users_own(file: str) -> bool:
    """Whether a file holds a model's code rather than a library's or the tool's own."""
    if file.startswith("<") or file.startswith(_PARITY):
        return False
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return parts[parts.index(folder) + 1].removesuffix(".py") not in _LIBRARIES
    return not file.startswith(_STANDARD)


@cache
def is_layer_code(file: str) -> bool:
    """Whether a file of a framework holds its layers: what is blamed where the user has no code."""
    return any(
        part in file for part in ("torch/nn/modules", "flax/linen", "flax/nnx", "haiku/_src")
    )


def users_frame(frame: FrameType | None) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame of the user's own, else of a layer's.

    Frames of the code that called the tool do not count: what the tool itself asks for, such as a
    copy of a buffer, has no line in the model.
    """
    layer = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PARITY) and not file.startswith(_RECORDER):
            break
        if is_users_own(file):
            return file, frame.f_lineno, frame.f_code.co_name
        if layer is None and is_layer_code(file):
            layer = file, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return layer


def code_at(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
