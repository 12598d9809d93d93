"""The source lines at which a seeded bug acts, found by running the model with it."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from verification.bugs import seeded

_BUGS = str(Path(seeded.__file__).parent)
Line = tuple[str, int]


class _Stacks(TorchDispatchMode):
    """The stack of every operation, the innermost frame first, and whether it is in a module."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.found: set[tuple[bool, tuple[Line, ...]]] = set()
        self.depth = 0
        module.register_forward_pre_hook(lambda *_: self._move(1))
        module.register_forward_hook(lambda *_: self._move(-1))

    def _move(self, step: int) -> None:
        self.depth += step

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.add((self.depth > 0, tuple(_lines(sys._getframe(1)))))
        return func(*args, **(kwargs or {}))


def _lines(frame: FrameType | None) -> Iterator[Line]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def lines_of_bug(model: torch.nn.Module, at: str, inputs: Mapping[str, Any]) -> set[Line]:
    """The lines of operations that the bug's own code asks for, itself or through what it calls.

    And the line that calls it. Where the bug acts on the model's construction alone: all lines of
    the module that it is in.

    Args:
        at: the module, as `SeededBug.at` names it.
    """
    try:
        module = model.get_submodule(at.partition("@")[0])
    except AttributeError:
        module = model
    with _Stacks(module) as stacks, torch.no_grad():
        model(**inputs)
    own: set[Line] = set()
    for _, stack in stacks.found:
        inside = [i for i, (file, _) in enumerate(stack) if file.startswith(_BUGS)]
        if inside:
            own |= set(stack[: inside[-1] + 2])
    return own or {line for within, stack in stacks.found if within for line in stack}
