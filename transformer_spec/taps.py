"""Named values inside a module's own code, for a recorder. Without one, a tap costs nothing.

A module's output can be seen from outside; what happens between its submodules (scores, weights)
cannot, so both twins name these values with `tap`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Recorder = Callable[[str, Any], Any]

_recorders: list[Recorder] = []


def tap(name: str, value: Any) -> Any:
    """`value`, or what the active recorder returns in its place."""
    return _recorders[-1](name, value) if _recorders else value


@contextmanager
def collecting(name: str) -> Iterator[list[Any]]:
    """The values of every `tap` of that name inside the `with`, in order."""
    values: list[Any] = []
    outer = _recorders[-1] if _recorders else None

    def collect(given: str, value: Any) -> Any:
        value = value if outer is None else outer(given, value)
        if given == name:
            values.append(value)
        return value

    with recording(collect):
        yield values


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Inside the `with`, `recorder` is the active recorder: every `tap` goes through it."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.pop()
