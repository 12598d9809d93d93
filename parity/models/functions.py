"""Which framework a plain function is written in, by the names in its code."""

from types import FunctionType, ModuleType
from typing import Any

_JAX = {"jax", "flax", "haiku", "equinox", "optax"}


def framework_named(function: Any) -> str | None:
    """Of which framework a function's code holds names, "torch" or "jax"; None: of neither."""
    if not isinstance(function, FunctionType):
        return None
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    for held in named:
        owner = held.__name__ if isinstance(held, ModuleType) else getattr(held, "__module__", "")
        package = str(owner).partition(".")[0]
        if package == "torch" or package in _JAX:
            return "torch" if package == "torch" else "jax"
    return None
