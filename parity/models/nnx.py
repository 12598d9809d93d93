"""Flax NNX: a module, or its graph definition and state."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from parity.models.failures import JAX_RUNS, blaming
from parity.models.model import JaxModel
from parity.models.trees import ArrayTree, floating, owner_kinds, widest
from parity.observe.settings import NotComparableError


def is_nnx(model: object) -> bool:
    """Whether it is an NNX module or the definition of one, known without importing Flax."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(model, nnx.Module | nnx.GraphDef)


def nnx_model(model: Any, states: Sequence[Any], options: Mapping[str, Any]) -> JaxModel:
    """An NNX module, or (graphdef, state), or (graphdef, state, more state), as a `JaxModel`.

    Random keys and their counters stay as they are: they are no arrays of the model.
    """
    from flax import nnx

    if isinstance(model, nnx.GraphDef):
        with blaming("jax: the state does not fit the graph definition"):
            model = nnx.merge(model, *states)
    elif states:
        raise NotComparableError("jax: an NNX module brings its state; hand it over alone")
    graph, learned, random, rest = nnx.split(model, nnx.Param, nnx.RngState, ...)
    trees = ArrayTree(learned), ArrayTree(rest)
    parameters, others = (tree.arrays() for tree in trees)
    kinds = owner_kinds(model, parameters | others, "flax.nnx")

    def call(given: Mapping[str, jax.Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        filled = [tree.filled(given) for tree in trees]
        with blaming(JAX_RUNS):
            merged = nnx.merge(graph, filled[0], random, filled[1])
            if dtype := widest(given):
                _set_carries(merged, dtype)
            return merged(*args, **kwargs, **options)

    return JaxModel(parameters | others, floating(parameters), call, True, options, kinds)


def _set_carries(module: Any, dtype: Any) -> None:
    """Let recurrent cells start from a carry of the run's dtype, not of their parameters'."""
    from flax import nnx

    for _, node in nnx.iter_graph(module):
        if hasattr(type(node), "initialize_carry"):
            node.param_dtype = node.dtype or dtype
