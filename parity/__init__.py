"""Show where two models agree, how closely, and why they do not."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.comparison import compare
    from parity.observe.settings import NotComparableError
    from parity.observe.weights import weights_to_flax, weights_to_torch
    from parity.report import Result
    from parity.training.initialization import initialization
    from parity.training.losses import compare_losses
    from parity.training.train_step import train_step

__all__ = [
    "NotComparableError",
    "Result",
    "compare",
    "compare_losses",
    "initialization",
    "train_step",
    "weights_to_flax",
    "weights_to_torch",
]
_MODULES = {
    "NotComparableError": "observe.settings",
    "Result": "report",
    "compare": "comparison",
    "compare_losses": "training.losses",
    "initialization": "training.initialization",
    "train_step": "training.train_step",
    "weights_to_flax": "observe.weights",
    "weights_to_torch": "observe.weights",
}


def __getattr__(name: str) -> object:
    """Import at first use: the command line can then say which framework is not installed."""
    if name in _MODULES:
        return getattr(import_module(f"parity.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'parity' has no attribute {name!r}")
