"""A seeded bug: one real porting mistake, put into the torch twin for the length of a `with`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SeededBug:
    """One entry of the list of bugs.

    Args:
        id: the entry's id, such as ATT-01.
        name: the mistake in a few words.
        component: attention, mask, positions, norm, ...
        sources: addresses of public reports of it.
        how: one sentence that says what the twin does instead.
        case: the name of the pair, in `verification.bugs.cases`, on which it shows.
        at: the module (`decoder.layers.0.attn`) or the stage (`optimizer.clip`) that holds it.
        cause: a regular expression that the diagnosis must match to have named it.
        install: a context in which the twin has the bug.
    """

    id: str
    name: str
    component: str
    sources: tuple[str, ...]
    how: str
    case: str
    at: str
    cause: str
    install: Callable[[], AbstractContextManager[None]] = field(compare=False)


@dataclass(frozen=True)
class PendingBug:
    """An entry of the list that needs a feature that the project does not have yet."""

    id: str
    name: str
    component: str
    sources: tuple[str, ...]
    needs: str


def github(*paths: str) -> tuple[str, ...]:
    """The addresses of reports such as `owner/name/issues/1`."""
    return tuple(f"https://github.com/{path}" for path in paths)


@contextmanager
def swapped(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    """`owner.name` is `wrong` inside the `with`."""
    right = getattr(owner, name)
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)
