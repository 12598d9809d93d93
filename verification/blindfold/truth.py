"""The source lines at which a seeded bug acts, found by running the model with it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from verification.bugs import seeded

_BUGS = str(Path(seeded.__file__).parent)
Line = tuple[str, int]


class _Stacks(TorchDispatchMode):
    """The stack of every operation, the innermost frame first."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[Line, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.add(tuple(_lines(sys._getframe(1))))
        return func(*args, **(kwargs or {}))


def _lines(frame: FrameType | None) -> Iterator[Line]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def lines_of_bug(model: torch.nn.Module, *args: Any, **kwargs: Any) -> set[Line]:
    """The lines of operations that the bug's own code asks for, itself or through what it calls.

    And the line that calls it. Empty where the bug acts on the model's construction alone.
    """
    with _Stacks() as stacks, torch.no_grad():
        model(*args, **kwargs)
    found: set[Line] = set()
    for stack in stacks.found:
        inside = [i for i, (file, _) in enumerate(stack) if file.startswith(_BUGS)]
        if inside:
            found |= set(stack[: inside[-1] + 2])
    return found
