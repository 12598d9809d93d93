"""The first value of a forward pass that is not finite, by the module or tap that made it."""

from collections.abc import Callable
from typing import Any


class Watch:
    """Follows one forward pass; both twins tell it of modules and taps in order of execution.

    Args:
        is_finite: whether all that a module returned, or a tap named, is finite.
    """

    def __init__(self, is_finite: Callable[[Any], bool]):
        self.is_finite = is_finite
        self.first: str | None = None
        self._modules: list[str] = []

    def enter(self, module: str) -> None:
        self._modules.append(module)

    def leave(self, output: Any) -> None:
        self._see(f"output of {self._modules.pop() or 'the model'}", output)

    def tap(self, name: str, value: Any) -> Any:
        module = self._modules[-1] if self._modules else ""
        self._see(f"{name} of {module or 'the model'}", value)
        return value

    def _see(self, name: str, value: Any) -> None:
        if self.first is None and not self.is_finite(value):
            self.first = name
