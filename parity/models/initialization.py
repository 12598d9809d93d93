"""Variables that a model initializes itself, from its inputs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from parity.models.failures import blaming
from parity.observe.flax_side import compile_fast
from parity.observe.settings import NotComparableError


def initialize(make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What make(**options) returns, computed by one compiled program.

    Some layers can be initialized in training alone (Haiku's BatchNorm), so that on failure the
    options that are True or False are tried the other way round, one at a time.

    Raises:
        NotComparableError: with the first failure.
    """
    failure = None
    for tried in _variants(options):
        try:
            with blaming("the JAX side does not initialize"):
                return compile_fast(lambda chosen=tried: make(**chosen))()
        except NotComparableError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _variants(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield dict(options)
    for name, value in options.items():
        if isinstance(value, bool):
            yield {**options, name: not value}


def random_key() -> jax.Array:
    """The key that parameters are initialized with; they are overwritten by the other side's."""
    return jax.random.key(0)
