"""Haiku: what `hk.transform` or `hk.transform_with_state` returned, alone or with parameters."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax

from parity.models.failures import JAX_RUNS, blaming
from parity.models.initialization import initialize, random_key
from parity.models.model import JaxModel
from parity.models.trees import ArrayTree, by_call, floating, library_class
from parity.observe.settings import NotComparableError


def is_transformed(model: object) -> bool:
    """Whether it is a transformed pair of init and apply."""
    return type(model).__module__.startswith("haiku") and hasattr(model, "apply")


def haiku_model(
    transformed: Any,
    given: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> JaxModel:
    """A transformed function as a `JaxModel`: arrays lie under "params/" and "state/".

    It is called with the key None: a function that draws random numbers has to be told not to.

    Args:
        transformed: what `hk.transform` or `hk.transform_with_state` returned, with or without
            `hk.without_apply_rng`.
        given: nothing, or the parameters, or parameters and state.
        args, kwargs: inputs.
        options: further arguments of the call.
    """
    stateful = "state" in inspect.signature(transformed.apply).parameters
    keys = [None] if "rng" in inspect.signature(transformed.apply).parameters else []
    if len(given) > 1 + stateful or (given and len(given) < 1 + stateful):
        parts = "(transformed, parameters, state)" if stateful else "(transformed, parameters)"
        raise NotComparableError(f"jax: {parts} is needed, got {len(given) + 1} parts")

    kinds: dict[str, str] = {}
    with _noting(kinds):
        made = given or initialize(partial(transformed.init, random_key()), args, kwargs, options)
    trees = given if given else (made if stateful else [made])
    names = ("params", "state")
    held = ArrayTree(dict(zip(names, trees, strict=False)))
    arrays = held.arrays()

    def call(
        given_arrays: Mapping[str, jax.Array], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        filled = list(held.filled(given_arrays).values())
        with blaming(JAX_RUNS):
            out = transformed.apply(*filled, *keys, *args, **kwargs, **options)
        return out[0] if stateful else out

    def run() -> Any:
        return call({}, args, kwargs)

    if given:
        with _noting(kinds):
            _quietly(run)
    trainable = frozenset(name for name in floating(arrays) if name.startswith("params/"))
    return JaxModel(arrays, trainable, call, bool(given), options, by_call(arrays, kinds))


def _noting(kinds: dict[str, str]) -> Any:
    """While it is open, the class of every Haiku layer that is called is noted by its path."""
    import haiku as hk

    def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        # A layer has no name yet while it is made.
        path = getattr(context.module, "module_name", None)
        if path and path not in kinds and (kind := library_class(context.module, "haiku")):
            kinds[path] = kind
        return call(*args, **kwargs)

    return hk.intercept_methods(note)


def _quietly(run: Any) -> None:
    try:
        jax.eval_shape(run)
    except NotComparableError:
        # Whoever calls the model next is told why it does not run.
        return
