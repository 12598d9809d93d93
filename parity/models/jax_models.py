"""A model of any JAX library, or a function and a pytree, as a `JaxModel`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from parity.models import haiku, linen, nnx, pretrained
from parity.models.failures import JAX_RUNS, blaming
from parity.models.model import JaxModel
from parity.models.trees import ArrayTree, floating, owner_kinds
from parity.observe.settings import NotComparableError

_EXPECTED = (
    "a Linen module, (module, variables), an NNX module or (graphdef, state), an Equinox module, "
    "what hk.transform returned, or (function, pytree of arrays) is needed"
)


def jax_model(
    built: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> JaxModel:
    """The model in what a user's builder returned.

    Args:
        built: a Linen module alone, or with its variables or parameters; an NNX module, or its
            (graphdef, state); an Equinox module or any other pytree that can be called; what
            `hk.transform` returned, alone or with parameters and state; a Flax model of
            `transformers`; (function, pytree), called as function(pytree, *inputs); a function of
            the inputs alone.
        args, kwargs: the inputs, from which parameters are initialized where none are given.
        options: further keyword arguments of the call, such as {"train": False}.
    Raises:
        NotComparableError: it is none of these, or its initialization fails.
    """
    kwargs, options = dict(kwargs or {}), dict(options or {})
    model: Any
    model, *given = built if type(built) is tuple and built else (built,)
    if linen.is_linen(model):
        return linen.linen_model(model, given, args, kwargs, options)
    if nnx.is_nnx(model):
        return nnx.nnx_model(model, given, options)
    if haiku.is_transformed(model):
        return haiku.haiku_model(model, given, args, kwargs, options)
    if pretrained.is_pretrained(model):
        return pretrained.pretrained_model(model, given, args, kwargs, options)
    if len(given) == 1 and callable(model):
        return function_model(model, given[0], options)
    if not given and not jax.tree_util.all_leaves([model]) and callable(model):
        return function_model(_call_tree, model, options)
    if not given and callable(model):
        return function_model(lambda _, *a, **k: model(*a, **k), {}, options)
    found = ", ".join(type(part).__name__ for part in (model, *given))
    found = f"({found})" if type(built) is tuple else found
    raise NotComparableError(f"jax: {_EXPECTED}; this is {found}")


def function_model(function: Callable[..., Any], tree: Any, options: Mapping[str, Any]) -> JaxModel:
    """function(tree, *inputs), whose tree may be any pytree, of Equinox modules too."""
    held = ArrayTree(tree)
    arrays = held.arrays()

    def call(given: Mapping[str, jax.Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with blaming(JAX_RUNS):
            return function(held.filled(given), *args, **kwargs, **options)

    kinds = owner_kinds(tree, arrays, "equinox") if "equinox" in sys.modules else {}
    return JaxModel(arrays, floating(arrays), call, True, options, kinds)


def _call_tree(tree: Any, *args: Any, **kwargs: Any) -> Any:
    return tree(*args, **kwargs)
