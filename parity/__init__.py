"""Tools that show where two models agree, how closely, and why they do not."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.compare import Result, compare
    from parity.observe.settings import NotComparableError

__all__ = ["NotComparableError", "Result", "compare"]
_HOMES = {"NotComparableError": "settings", "Result": "pair", "compare": "pair"}


def __getattr__(name: str) -> Any:
    """Looked up at first use: the command line can then say which framework is not installed."""
    if name in _HOMES:
        return getattr(import_module(f"parity.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'parity' has no attribute {name!r}")
