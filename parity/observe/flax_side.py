"""A Flax Linen model under observation."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from parity.observe import names
from parity.observe.arrays import dtype_name, is_array, to_numpy
from parity.observe.points import (
    OUTPUTS,
    Failure,
    Key,
    Observed,
    Point,
    Probe,
    Recording,
    Substitutes,
    Visit,
    Walk,
    map_arguments,
    map_arrays,
    probe_weights,
)
from transformer_spec import taps

Inputs = Mapping[str, np.ndarray] | list[np.ndarray]
Values = dict[Key, list[Any]]

# A program under observation runs once: on a CPU the compiler is told not to work on its speed.
_FAST_COMPILE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@cache
def fast_compile_options() -> dict[str, int | bool]:
    """The compiler options for a program that runs once, those that this version of XLA knows."""
    known = {}
    for name, value in _FAST_COMPILE.items() if jax.default_backend() == "cpu" else ():
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


def compile_fast(function: Callable) -> Callable:
    """`jax.jit` for a program that runs once: the compiler takes as little time as it can."""
    return jax.jit(function, compiler_options=fast_compile_options())


class FlaxFunction(nn.Module):
    """A function without parameters as a Linen module."""

    function: Callable

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class FlaxSide:
    """A Linen module, its variables and its inputs.

    Args:
        module: any Linen module (`FlaxFunction` makes one of a function).
        variables: what `module.init` returns, or its "params" alone.
        inputs: arrays by position or by name.
        options: further keyword arguments of the call, such as {"train": False}.
        rename: the name on torch's side of what the mapping rule calls so.
        gradients: take them, or run forward alone.
        method: which of the module's methods is called.
        watched: the points to record; None: all. The fewer, the faster the compilation.
        probe: makes the weights of the outputs in the sum whose gradient is taken.
        compiler: makes the program of the run; `lambda function: function` runs it eagerly.
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
        *,
        method: str = "__call__",
        watched: Collection[Key] | None = None,
        probe: Probe = probe_weights,
        compiler: Callable[[Callable], Callable] = compile_fast,
    ):
        self.module, self.rename, self.gradients = module, rename, gradients
        self.method, self.watched, self.probe, self.compiler = method, watched, probe, compiler
        variables = variables if "params" in variables else {"params": variables}
        self.params = jax.tree.map(jnp.asarray, dict(variables["params"]))
        self.state = {name: v for name, v in variables.items() if name != "params"}
        by_name = isinstance(inputs, Mapping)
        self.args = [] if by_name else [_placed(x) for x in inputs]
        arrays = {name: _placed(x) for name, x in inputs.items()} if by_name else {}
        self.kwargs: dict[str, Any] = arrays | dict(options or {})

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters under torch's names, laid out as torch has them."""
        return self._named(self.params)

    def record(self) -> Recording:
        """The model as it is, with the gradient of a fixed weighting of its outputs."""
        shifts: Values = {}

        def measure(point: Point, arrays: list[Any]) -> list[Any]:
            shifts[point.key] = [np.zeros(a.shape if _floating(a) else (), a.dtype) for a in arrays]
            return arrays

        try:
            jax.eval_shape(lambda: self._walk(self.params, measure))
        except Exception as error:
            return Recording({}, {}, Failure(error, ""))
        weights = self.probe([shift.shape for shift in shifts[OUTPUTS]])

        def shifted(shift: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            moved = [a + s if _floating(a) else a for a, s in zip(arrays, shift, strict=True)]
            return moved, moved

        return self._execute(shifts, {OUTPUTS: weights}, shifted)

    def record_with(self, substitutes: Substitutes) -> Recording:
        """What each piece of code computes from the substitutes, and its gradients by them."""

        def replaced(new: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            if [a.shape for a in new] != [a.shape for a in arrays]:
                return arrays, arrays
            return arrays, [n.astype(a.dtype) for n, a in zip(new, arrays, strict=True)]

        return self._execute(dict(substitutes.arrays), substitutes.weights, replaced)

    def _execute(self, extra: Values, weights: Mapping, exchange: Callable) -> Recording:
        """Run the program once.

        Args:
            extra: what enters the program at each point beside the parameters.
            weights: those of the values at each point in the sum whose gradient is taken.
            exchange: from the extra and the computed values of a point, the values to record and
                those that later code reads.
        """
        points: list[Point] = []

        def program(params: Any, extra: Values) -> tuple[Any, list[Any]]:
            points.clear()
            recorded: list[Any] = []

            def visit(point: Point, arrays: list[Any]) -> list[Any]:
                given = extra.get(point.key)
                kept, onward = (arrays, arrays) if given is None else exchange(given, arrays)
                points.append(point)
                recorded.append(kept)
                return onward

            self._walk(params, visit)
            pairs = zip(points, recorded, strict=True)
            return sum(_weighted(kept, weights.get(p.key)) for p, kept in pairs), recorded

        both = jax.value_and_grad(program, argnums=(0, 1), has_aux=True, allow_int=True)
        try:
            if self.gradients:
                found = self.compiler(both)(self.params, extra)
                (_, recorded), (parameter_gradients, gradients) = found
            else:
                (_, recorded) = self.compiler(program)(self.params, extra)
                parameter_gradients, gradients = {}, {}
        except Exception as error:
            return Recording({}, {}, Failure(error, ""))
        observed = {
            point.key: Observed(
                point,
                [to_numpy(a) for a in arrays],
                [dtype_name(a) for a in arrays],
                [_gradient(g) for g in gradients.get(point.key, [])],
            )
            for point, arrays in zip(points, recorded, strict=True)
        }
        return Recording(observed, self._named(parameter_gradients))

    def _walk(self, params: Any, visit: Visit) -> None:
        """One call of the model; the values at every watched point go through `visit`."""

        def visit_watched(point: Point, arrays: list[Any]) -> list[Any]:
            watched = self.watched is None or point.key in self.watched or point.key == OUTPUTS
            return visit(point, arrays) if watched else arrays

        walk = Walk(visit_watched, self.rename)

        def intercept(call: Callable, args: tuple, kwargs: dict, context: Any) -> Any:
            path, method = context.module.path, context.method_name
            if method != "__call__" and (path or method != self.method):
                return call(*args, **kwargs)
            name = names.module_name(path)
            args, kwargs = map_arguments(
                lambda arguments, arrays: walk.enter(name, arguments, arrays),
                getattr(type(context.module), method),
                args,
                kwargs,
            )
            return map_arrays(walk.leave, call(*args, **kwargs))

        with nn.intercept_methods(intercept), taps.recording(walk.tap):
            variables = {"params": params, **self.state}
            self.module.apply(variables, *self.args, method=self.method, **self.kwargs)

    def _named(self, tree: Any) -> dict[str, np.ndarray]:
        return {self.rename(k): to_numpy(v) for k, v in names.to_named(tree).items()}


def _placed(value: Any) -> Any:
    return jnp.asarray(value) if is_array(value) else value


def _floating(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


def _weighted(arrays: list[Any], weights: list[Any] | None) -> jax.Array:
    """The sum of all values, each weighted; 0 where nothing weights them."""
    pairs = zip(arrays, weights or (), strict=False)
    return sum(
        ((jnp.asarray(w, a.dtype) * a).sum() for a, w in pairs if w is not None and _floating(a)),
        start=jnp.zeros(()),
    )


def _gradient(array: Any) -> np.ndarray | None:
    return None if array.dtype == jax.dtypes.float0 else to_numpy(array)
