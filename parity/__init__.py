"""Show where two models agree, how closely, and why they do not."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.comparison import compare
    from parity.observe.settings import NotComparableError
    from parity.observe.weights import weights_to_flax, weights_to_torch
    from parity.report import Result

__all__ = ["NotComparableError", "Result", "compare", "weights_to_flax", "weights_to_torch"]
_MODULES = {
    "NotComparableError": "observe.settings",
    "Result": "report",
    "compare": "comparison",
    "weights_to_flax": "observe.weights",
    "weights_to_torch": "observe.weights",
}


def __getattr__(name: str) -> object:
    """Import at first use: the command line can then say which framework is not installed."""
    if name in _MODULES:
        return getattr(import_module(f"parity.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'parity' has no attribute {name!r}")
