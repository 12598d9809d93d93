"""A Flax Linen model under observation."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from parity.observe.points import (
    Given,
    Key,
    Passed,
    Point,
    Run,
    Walk,
    dtype_name,
    first_line,
    probe_weights,
    through,
    to_numpy,
)
from parity.observe.points import touch_call as touch_arguments
from transformer_spec import naming, taps

Inputs = Mapping[str, np.ndarray] | list[np.ndarray]
Values = dict[Key, list[Any]]

# A program under observation runs once: on a CPU the compiler is told not to work on its speed.
_QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@cache
def quick_options() -> dict[str, int | bool]:
    """The compiler options for a program that runs once, those that this version of XLA knows."""
    known = {}
    for name, value in _QUICK.items() if jax.default_backend() == "cpu" else ():
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


class FlaxSide:
    """A Linen module, its variables and its inputs.

    Args:
        module: any Linen module.
        variables: what `module.init` returns, or its "params" alone.
        inputs: arrays by position or by name.
        options: further keyword arguments of its call, such as {"train": False}.
        rename: the name on torch's side of what the mapping rule calls so.
        gradients: take them, or run forward alone.
    """

    framework = "flax"

    def __init__(
        self,
        module: nn.Module,
        variables: Mapping[str, Any],
        inputs: Inputs,
        options: Mapping[str, Any] | None = None,
        rename: Callable[[str], str] = lambda name: name,
        gradients: bool = True,
    ):
        self.gradients = gradients
        variables = variables if "params" in variables else {"params": variables}
        self.module, self.rename = module, rename
        self.params = jax.tree.map(jnp.asarray, dict(variables["params"]))
        self.state = {name: v for name, v in variables.items() if name != "params"}
        named = isinstance(inputs, Mapping)
        self.args = [] if named else [jnp.asarray(x) for x in inputs]
        arrays = {name: jnp.asarray(x) for name, x in inputs.items()} if named else {}
        self.kwargs = arrays | dict(options or {})

    def parameters(self) -> dict[str, np.ndarray]:
        return self._named(self.params)

    def run(self) -> Run:
        """The model as it is, with the gradient of a fixed weighting of its outputs."""
        shifts: Values = {}

        def measure(point: Point, arrays: list[Any]) -> list[Any]:
            shifts[point.key] = [np.zeros(a.shape if _floating(a) else (), a.dtype) for a in arrays]
            return arrays

        try:
            jax.eval_shape(lambda: self._walk(self.params, measure))
        except Exception as error:
            return Run({}, {}, (first_line(error), ""))
        weights = probe_weights([shift.shape for shift in shifts["", "output"]])

        def shifted(shift: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            moved = [a + s if _floating(a) else a for a, s in zip(arrays, shift, strict=True)]
            return moved, moved

        return self._execute(shifts, {("", "output"): weights}, shifted)

    def run_with(self, given: Given) -> Run:
        """What each piece of code computes from the given values, and its gradients by them."""

        def replaced(new: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            if [a.shape for a in new] != [a.shape for a in arrays]:
                return arrays, arrays
            return arrays, [n.astype(a.dtype) for n, a in zip(new, arrays, strict=True)]

        return self._execute(dict(given.arrays), given.weights, replaced)

    def _execute(self, extra: Values, weights: Mapping, exchange: Callable) -> Run:
        points: list[Point] = []

        def program(params: Any, extra: Values) -> tuple[Any, list[Any]]:
            points.clear()
            seen: list[Any] = []

            def touch(point: Point, arrays: list[Any]) -> list[Any]:
                given = extra.get(point.key)
                look, onward = (arrays, arrays) if given is None else exchange(given, arrays)
                points.append(point)
                seen.append(look)
                return onward

            self._walk(params, touch)
            pairs = zip(points, seen, strict=True)
            return sum(_weighted(look, weights.get(p.key)) for p, look in pairs), seen

        both = jax.value_and_grad(program, argnums=(0, 1), has_aux=True, allow_int=True)
        try:
            if self.gradients:
                run = jax.jit(both, compiler_options=quick_options())
                (_, seen), (param_grads, grads) = run(self.params, extra)
            else:
                run = jax.jit(program, compiler_options=quick_options())
                (_, seen), (param_grads, grads) = run(self.params, extra), ({}, {})
        except Exception as error:
            return Run({}, {}, (first_line(error), ""))
        passed = {
            point.key: Passed(
                point,
                [to_numpy(a) for a in arrays],
                [dtype_name(a) for a in arrays],
                [_gradient(g) for g in grads.get(point.key, [])],
            )
            for point, arrays in zip(points, seen, strict=True)
        }
        return Run(passed, self._named(param_grads))

    def _walk(self, params: Any, touch: Callable) -> None:
        """One call of the model, every point of which goes through `touch`."""
        walk = Walk(touch, self.rename)

        def intercept(call: Callable, args: tuple, kwargs: dict, context: Any) -> Any:
            if context.method_name != "__call__":
                return call(*args, **kwargs)
            name = naming.module_name(context.module.path)
            function = type(context.module).__call__
            args, kwargs = touch_arguments(
                lambda arguments, arrays: walk.enter(name, arguments, arrays),
                function,
                args,
                kwargs,
            )
            return through(walk.leave, call(*args, **kwargs))

        with nn.intercept_methods(intercept), taps.recording(walk.tap):
            variables = {"params": params, **self.state}
            kwargs: dict[str, Any] = self.kwargs
            self.module.apply(variables, *self.args, **kwargs)

    def _named(self, tree: Any) -> dict[str, np.ndarray]:
        return {self.rename(k): to_numpy(v) for k, v in naming.to_named(tree).items()}


def _floating(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


def _weighted(arrays: list[Any], weights: list[Any] | None) -> Any:
    """The sum of all values, each weighted; 0 where nothing weights them."""
    pairs = zip(arrays, weights or (), strict=False)
    return sum(
        ((jnp.asarray(w, a.dtype) * a).sum() for a, w in pairs if w is not None and _floating(a)),
        start=jnp.zeros(()),
    )


def _gradient(array: Any) -> np.ndarray | None:
    return None if array.dtype == jax.dtypes.float0 else to_numpy(array)
