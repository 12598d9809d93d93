"""Somebody else's torch code, kept in float64 where it asks for float32."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What asks for float32 without naming it as a dtype.
_BY_NAME = {torch.Tensor.float: torch.Tensor.double}


class _Float64Kept(TorchFunctionMode):
    def __init__(self, package: str):
        super().__init__()
        self.package, self.islands = package, set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        asks = func in _BY_NAME or torch.float32 in (*_dtypes(args), *_dtypes(given.values()))
        if asks:
            self.islands.add(self._place())
            func = _BY_NAME.get(func, func)
            args = tuple(map(_widened, args))
            given = {name: _widened(value) for name, value in given.items()}
        return func(*args, **given)

    def _place(self) -> str:
        """The innermost function of the package that is running: file and qualified name."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if self.package in path.parts:
                return f"{path.name}: {frame.f_code.co_qualname}"
            frame = frame.f_back
        return f"outside of {self.package}"


def _dtypes(values: Any) -> list[torch.dtype]:
    return [value for value in values if isinstance(value, torch.dtype)]


def _widened(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


@contextmanager
def float64_kept(package: str) -> Iterator[set[str]]:
    """Every request for float32 gives float64, so that a formula can be compared to rounding.

    Softmaxes, norms and tables are often taken in float32 whatever the model is in. Under this
    `.float()`, `.to(torch.float32)` and any `dtype=torch.float32` give float64, and so does what
    has no dtype of its own. Yields the places that asked, as "file: function".

    Args:
        package: whose functions are named as places.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64Kept(package) as mode:
            yield mode.islands
    finally:
        torch.set_default_dtype(default)
