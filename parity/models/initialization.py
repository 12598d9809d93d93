"""Variables that a model initializes itself, from its inputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from parity.models.failures import blaming
from parity.observe.flax_side import compile_fast
from parity.observe.settings import NotComparableError


def initialize(
    make: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """What make(*args, **kwargs, **options) returns, computed by one compiled program.

    Floating-point inputs are given in float32 first, the dtype of the parameters that most
    libraries make: a scan refuses a carry that changes its dtype. Some layers can be initialized in
    training alone (Haiku's BatchNorm), so that on failure the options that are True or False are
    tried the other way round, one at a time.

    Raises:
        NotComparableError: with the first failure.
    """
    failure = None
    for chosen in _variants(options):
        for as_given in (False, True):
            given = (args, kwargs) if as_given else narrowed(args, kwargs)
            try:
                with blaming("the JAX side does not initialize"):
                    return _compiled(make, *given, chosen)
            except NotComparableError as error:
                failure = failure or error
    assert failure is not None
    raise failure


def _compiled(
    make: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    return compile_fast(lambda: make(*args, **kwargs, **options))()


def narrowed(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The inputs with float64 arrays as float32."""

    def narrow(leaf: Any) -> Any:
        is_wide = isinstance(leaf, np.ndarray | jax.Array) and leaf.dtype == np.float64
        return np.asarray(leaf, np.float32) if is_wide else leaf

    return (
        [jax.tree.map(narrow, arg) for arg in args],
        {name: jax.tree.map(narrow, arg) for name, arg in kwargs.items()},
    )


def _variants(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield dict(options)
    for name, value in options.items():
        if isinstance(value, bool):
            yield {**options, name: not value}


def random_key() -> jax.Array:
    """The key that parameters are initialized with; they are overwritten by the other side's."""
    return jax.random.key(0)
