"""Named values inside a module's own code, for whoever looks. Free when nobody does.

A module's output can be seen from outside; what happens between its submodules (scores, weights)
cannot, so both twins name these values with `tap`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Recorder = Callable[[str, Any], Any]

_recorders: list[Recorder] = []


def tap(name: str, value: Any) -> Any:
    """`value`, unless a recorder listens: then what the recorder puts in its place."""
    return _recorders[-1](name, value) if _recorders else value


@contextmanager
def collecting(name: str) -> Iterator[list[Any]]:
    """The values of every `tap` of that name inside the `with`, in order."""
    values: list[Any] = []
    heard = _recorders[-1] if _recorders else None

    def collect(given: str, value: Any) -> Any:
        value = value if heard is None else heard(given, value)
        if given == name:
            values.append(value)
        return value

    with recording(collect):
        yield values


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Every `tap` inside the `with` goes through `recorder`."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.pop()
