"""A user's training in JAX: (parameters, optax transformation, loss), or (state, step)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.models.failures import JAX_RUNS, blaming
from parity.models.trees import ArrayTree, floating
from parity.observe.settings import NotComparableError
from parity.training.record import Loop, Named, Step, Update

_EXPECTED = (
    "jax: (parameters, optax transformation, loss) or (state, step) is needed; "
    "loss(parameters, batch) returns a number, step(state, batch) the new state and metrics"
)


def jax_loop(given: Any) -> Loop:
    """What a user handed over as a `Loop`.

    Args:
        given: (parameters, transformation, loss), where loss(parameters, batch) returns the loss or
            (loss, anything); or (state, step), where state is a `TrainState` or any pytree with
            parameters under `params`, and step(state, batch) returns the new state, alone or with
            metrics in any order; (transformation, parameters): the optimizer alone.
    Raises:
        NotComparableError: it is none of these.
    """
    if isinstance(given, tuple) and len(given) == 3 and _is_transformation(given[1]):
        return _of_loss(*given)
    if isinstance(given, tuple) and len(given) == 2 and _is_transformation(given[0]):
        return _of_loss(given[1], given[0], None)
    if isinstance(given, tuple) and len(given) == 2 and callable(given[1]):
        return _of_state(*given)
    raise NotComparableError(_EXPECTED)


def _is_transformation(part: Any) -> bool:
    return callable(getattr(part, "init", None)) and callable(getattr(part, "update", None))


def _double(tree: Any, counts: bool = False) -> Any:
    """Everything in float64.

    Args:
        counts: integers in 64 bits too. JAX makes float32 of int32, so that a schedule of optax
            would compute its rates in float32.
    """

    def widened(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray):
            return leaf
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(leaf, jnp.float64)
        if counts and leaf.dtype == jnp.int32:
            return jnp.asarray(leaf, jnp.int64)
        return leaf

    return jax.tree.map(widened, tree)


def _of_loss(params: Any, optimizer: Any, loss: Callable[..., Any] | None) -> Loop:
    held = ArrayTree(_double(params))
    arrays = _float(held.arrays())

    @jax.jit
    def apply(tree: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(grads, state, tree)
        return jax.tree.map(lambda p, u: p + u, tree, updates), state

    def scalar(tree: Any, batch: Any) -> Any:
        assert loss is not None
        out = loss(tree, batch)
        return out[0] if isinstance(out, tuple) else out

    def run(weights: Named, buffers: Named, batches: Sequence[Any]) -> list[Step]:
        with blaming(JAX_RUNS):
            differentiate = jax.jit(jax.value_and_grad(scalar))
            tree = held.filled(_jax(weights))
            state, steps = _double(optimizer.init(tree), counts=True), []
            for batch in batches:
                value, grads = differentiate(tree, _batch(batch))
                new, state = apply(tree, state, grads)
                named = (_named(grads), {}, _named(tree), _named(new))
                steps.append(Step(float(value), *named))
                tree = new
        return steps

    def update(weights: Named, gradients: Sequence[Named]) -> list[Update]:
        with blaming(JAX_RUNS):
            tree = held.filled(_jax(weights))
            state, found = _double(optimizer.init(tree), counts=True), []
            for grads in gradients:
                new, state = apply(tree, state, held.filled(_jax(grads)))
                found.append(Update(_named(tree), _named(new)))
                tree = new
        return found

    return Loop("jax", arrays, {}, run, update)


def _of_state(state: Any, step: Callable[..., Any]) -> Loop:
    place = _parameters_of(state)
    doubled = _double(state, counts=True)
    whole = ArrayTree(doubled)
    everything = whole.arrays()
    arrays = {n.removeprefix(place): a for n, a in everything.items() if n.startswith(place)}
    names = set(_float(arrays))
    structure = {n: a.shape for n, a in arrays.items()}
    copies = _copies(everything, place, structure)
    moments = {n for n in everything if n.split("/")[0] == "opt_state"}
    statistics = {
        n: a
        for n, a in _float(everything).items()
        if not n.startswith((place, *copies)) and n not in moments and a.ndim
    }
    optimizer = getattr(state, "tx", None)

    def run(weights: Named, buffers: Named, batches: Sequence[Any]) -> list[Step]:
        current = whole.filled(_jax({place + n: a for n, a in weights.items()} | dict(buffers)))
        fresh = {p + n: a for p in copies for n, a in weights.items() if p + n in everything}
        current = ArrayTree(current).filled(_jax(fresh))
        current, seen = _watched(current)
        steps = []
        for batch in batches:
            seen.clear()
            with blaming(JAX_RUNS):
                new, loss = _parts(step(current, _batch(batch)), current)
            named = ArrayTree(new).arrays()
            gradients = _float(ArrayTree(seen[0]).arrays()) if seen else {}
            before = ArrayTree(current).arrays()
            steps.append(
                Step(
                    loss,
                    gradients,
                    {},
                    {n: np.asarray(before[place + n]) for n in names},
                    {n: np.asarray(named[place + n]) for n in names},
                    {n: np.asarray(named[n]) for n in statistics},
                    {p.strip("/"): {n: np.asarray(named[p + n]) for n in names} for p in copies},
                )
            )
            current = new
        return steps

    update = None
    if optimizer is not None and _is_transformation(optimizer):
        tree = {n: everything[place + n] for n in names}
        update = _of_loss(tree, _flattened(optimizer, whole, place), None).update
    return Loop("jax", {n: arrays[n] for n in names}, statistics, run, update)


def _parameters_of(state: Any) -> str:
    """The prefix of the parameters in the state's paths."""
    names = ArrayTree(state).arrays()
    if any(n.startswith("params/") for n in names):
        # A state that holds Linen's variables has its parameters one collection deeper.
        deeper = any(n.startswith("params/params/") for n in names)
        return "params/params/" if deeper else "params/"
    for prefix in ("model/", "0/"):
        if any(n.startswith(prefix) for n in names):
            return prefix
    raise NotComparableError("jax: the state holds no `params`; hand over {'params': ..., ...}")


def _copies(everything: Mapping[str, Any], place: str, structure: Mapping[str, Any]) -> list[str]:
    """Prefixes, outside of the optimizer's state, under which copies of the parameters lie."""
    first = next(iter(structure))
    found = []
    for name in everything:
        prefix = name.removesuffix(first)
        if name.startswith("opt_state") or not name.endswith(first) or prefix == place:
            continue
        shapes = {n: getattr(everything.get(prefix + n), "shape", None) for n in structure}
        if shapes == dict(structure):
            found.append(prefix)
    return found


def _flattened(optimizer: Any, whole: ArrayTree, place: str) -> Any:
    """The optimizer on a flat dictionary, its own tree built around every call."""
    import optax

    def tree(flat: Mapping[str, Any]) -> Any:
        filled = whole.filled({place + n: a for n, a in flat.items()})
        return filled.params if hasattr(filled, "params") else filled["params"]

    def flat(nested: Any) -> dict[str, Any]:
        prefix = place.removeprefix("params/")
        keyed = ArrayTree(nested)._named()
        return {n.removeprefix(prefix): a for n, a in keyed.items() if n.startswith(prefix)}

    def init(params: Any) -> Any:
        return optimizer.init(tree(params))

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        moved, state = optimizer.update(tree(updates), state, tree(params))
        return flat(moved), state

    return optax.GradientTransformation(init, update)


def _watched(state: Any) -> tuple[Any, list[Any]]:
    """The state with an optimizer that hands the gradients it gets to a list."""
    import optax

    seen: list[Any] = []
    optimizer = getattr(state, "tx", None)
    if optimizer is None or not hasattr(state, "replace"):
        return state, seen

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:
        jax.debug.callback(lambda given: seen.append(jax.device_get(given)), updates)
        return optimizer.update(updates, state, params, **extra_args)

    watched = optax.GradientTransformationExtraArgs(optimizer.init, update)
    return state.replace(tx=watched), seen


def _parts(out: Any, state: Any) -> tuple[Any, float | None]:
    """The new state and the loss among what a step returned."""
    structure = jax.tree.structure(state)
    parts = out if isinstance(out, tuple) and jax.tree.structure(out) != structure else (out,)
    states = [p for p in parts if jax.tree.structure(p) == structure]
    if not states:
        raise NotComparableError("jax: the step returns no state like the one it is given")
    others = [p for p in parts if p is not states[0]]
    return states[0], next((x for o in others if (x := _loss_in(o)) is not None), None)


def _loss_in(part: Any) -> float | None:
    if isinstance(part, Mapping):
        return float(np.asarray(part["loss"])) if "loss" in part else None
    if isinstance(part, jax.Array | np.ndarray | float) and np.ndim(part) == 0:
        return float(part)
    return None


def _float(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    chosen = floating(arrays)
    return {n: np.asarray(a, np.float64) for n, a in arrays.items() if n in chosen}


def _named(tree: Any) -> dict[str, np.ndarray]:
    return _float(ArrayTree(tree).arrays())


def _jax(arrays: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    return {n: jnp.asarray(a) for n, a in arrays.items()}


def _batch(batch: Any) -> Any:
    return _double(
        jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, batch)
    )
