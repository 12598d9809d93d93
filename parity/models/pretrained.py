"""The Flax classes of `transformers` 4: a model that holds a Linen module and its parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from parity.models.failures import JAX_RUNS, blaming
from parity.models.initialization import initialize, random_key
from parity.models.linen import called_kinds
from parity.models.model import JaxModel
from parity.models.trees import ArrayTree, by_call, floating
from parity.observe.settings import NotComparableError


def is_pretrained(model: object) -> bool:
    """Whether a class of it is `FlaxPreTrainedModel`, known without importing `transformers`."""
    return any(kind.__name__ == "FlaxPreTrainedModel" for kind in type(model).__mro__)


def pretrained_model(
    model: Any,
    given: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> JaxModel:
    """A model of `transformers` as a `JaxModel`; its own call prepares masks and positions.

    Args:
        model: made with `_do_init=False` it holds no parameters.
        given: nothing, or the parameters.
        args, kwargs: inputs.
        options: further arguments of the call.
    """
    if len(given) > 1:
        raise NotComparableError(f"jax: (model, parameters) is needed, got {len(given) + 1} parts")
    loaded = bool(given) or getattr(model, "_is_initialized", True)
    if given:
        tree = given[0].get("params", given[0])
    elif loaded:
        tree = model.params
    else:
        tree = initialize(model.init_weights, [random_key(), model.input_shape], {}, {})
    held = ArrayTree(dict(tree), "params/")
    arrays = held.arrays()

    def call(
        given_arrays: Mapping[str, jax.Array], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        with blaming(JAX_RUNS):
            return model(*args, params=held.filled(given_arrays), **kwargs, **options)

    kinds = by_call(arrays, called_kinds(call, args, kwargs))
    return JaxModel(arrays, floating(arrays), call, loaded, options, kinds)
