"""Flax Linen: a module, alone, bound, or with its variables."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from parity.models.failures import JAX_RUNS, blaming
from parity.models.initialization import initialize, narrowed, random_key
from parity.models.model import JaxModel
from parity.models.trees import ArrayTree, by_call, floating, library_class, widest
from parity.observe.settings import NotComparableError

if TYPE_CHECKING:
    import flax.linen as nn


def is_linen(model: object) -> bool:
    """Whether it is a Linen module, known without importing Flax."""
    linen = sys.modules.get("flax.linen")
    return linen is not None and isinstance(model, linen.Module)


def linen_model(
    module: "nn.Module",
    given: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> JaxModel:
    """A Linen module as a `JaxModel`.

    Args:
        module: bound, it brings its variables.
        given: nothing, or the variables, or the tree below their "params" alone.
        args, kwargs: inputs.
        options: further arguments of the call; "rngs" goes to `apply`, as ever.
    """
    import flax.linen as nn
    from flax.core import meta, unfreeze

    if module.scope is not None:
        module, bound = module.unbind()
        given = given or [bound]
    if len(given) > 1:
        raise NotComparableError(f"jax: (module, variables) is needed, these are {len(given)} more")
    if given:
        variables = _with_collections(unfreeze(given[0]))
        missing = _missing_collections(module, variables, args, kwargs, options)
        variables = {**missing, **variables}
    else:
        variables = _initialized(module, args, kwargs, options)
    held = ArrayTree(meta.unbox(variables))
    arrays = held.arrays()

    def call(
        given_arrays: Mapping[str, jax.Array], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        filled = held.filled(given_arrays)
        mutable = [collection for collection in filled if collection != "params"]
        dtype = widest(given_arrays)
        with blaming(JAX_RUNS), nn.intercept_methods(partial(_set_carries, dtype)):
            return module.apply(filled, *args, mutable=mutable, **kwargs, **options)[0]

    trainable = frozenset(name for name in floating(arrays) if name.startswith("params/"))
    kinds = by_call(arrays, called_kinds(call, args, kwargs))
    return JaxModel(arrays, trainable, call, bool(given), options, kinds)


def _set_carries(dtype: Any, call: Any, args: Any, kwargs: Any, context: Any) -> Any:
    """Let recurrent cells start from a carry of the run's dtype, not of their parameters' default.

    A bound module is a copy that lives as long as the call.
    """
    for layer in (context.module, *vars(context.module).values()):
        if dtype is not None and hasattr(type(layer), "initialize_carry"):
            object.__setattr__(layer, "param_dtype", layer.dtype or dtype)
    return call(*args, **kwargs)


def _with_collections(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Variables; a tree of parameters alone gets the collection that it lacks."""
    return dict(tree) if "params" in tree else {"params": dict(tree)}


def _initialized(
    module: "nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    from flax.core import unfreeze

    options = {name: value for name, value in options.items() if name != "rngs"}
    made = initialize(partial(module.init, _keys()), args, kwargs, options)
    return {"params": {}, **unfreeze(made)}


def _keys() -> dict[str, jax.Array]:
    """Linen takes any stream that is missing from "params"; a bridged NNX module does not."""
    return {stream: random_key() for stream in ("params", "dropout", "default")}


def _missing_collections(
    module: "nn.Module",
    variables: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Collections that the module makes and the user did not hand over, as initialized.

    Parameters given alone leave running statistics out, which the module cannot run without.
    """
    try:
        made = jax.eval_shape(lambda: module.init(_keys(), *args, **kwargs, **options))
        if set(made) <= set(variables):
            return {}
        initialized = _initialized(module, args, kwargs, options)
    except Exception:
        # With variables given a module may run that does not initialize.
        return {}
    return {name: tree for name, tree in initialized.items() if name not in variables}


def called_kinds(
    model_call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, str]:
    """The class of every layer that a call runs, by path, in order; {} where it fails.

    A class of the user's own has its bare name, one derived from Linen's the name of that.
    """
    import flax.linen as nn

    called: dict[str, str] = {}

    def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        layer, path = context.module, "/".join(context.module.path)
        if path not in called:
            kind = library_class(layer, "flax.linen") or type(layer).__name__
            transposed = getattr(layer, "transpose_kernel", False)
            called[path] = f"{kind}(transpose_kernel)" if transposed else kind
        return call(*args, **kwargs)

    try:
        with nn.intercept_methods(note):
            jax.eval_shape(lambda: model_call({}, *narrowed(args, kwargs)))
    except NotComparableError:
        # Whoever calls the model next is told why it does not run.
        return {}
    return called
