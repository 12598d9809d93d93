"""Follow one run of a model: every point where values pass, by name, in order of execution.

Values pass where a module is called (its inputs), where it returns (its output), and where
`transformer_spec.taps.tap` names one inside it. The sides of both frameworks visit the same points.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from parity.observe.arrays import is_array

Arrays = list[np.ndarray]
Key = tuple[str, str]
Visit = Callable[["Point", list[Any]], list[Any]]
Probe = Callable[[Sequence[tuple[int, ...]]], list[np.ndarray]]

INPUTS: Key = "", "input"
OUTPUTS: Key = "", "output"
# What to watch where only a model's own inputs, outputs and gradients are asked for.
ENDS: Collection[Key] = frozenset({INPUTS, OUTPUTS})


@dataclass(frozen=True)
class Point:
    """A place where values pass.

    Args:
        name: the module, or module.tap; `@2` marks a module's second call.
        kind: what passes.
        module: whose code computed the values: the caller for an input.
        arguments: of an input, which argument each array belongs to.
    """

    name: str
    kind: Literal["input", "output", "tap"]
    module: str
    arguments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> Key:
        return self.name, self.kind

    def __str__(self) -> str:
        return f"{self.kind} of {display_name(self.name)}" if self.kind != "tap" else self.name


@dataclass
class Observed:
    """What passed at a point: arrays, their own dtypes, and the gradient of the probe by each.

    NumPy has no bfloat16: such an array is held in float32. A gradient is None where none is taken.
    """

    point: Point
    arrays: Arrays
    dtypes: list[str]
    gradients: list[np.ndarray | None] = field(default_factory=list)

    def array_names(self) -> list[str]:
        """A name for each array."""
        if len(self.arrays) == 1:
            return [str(self.point)]
        return [f"{self.point} [{i}]" for i in range(len(self.arrays))]


@dataclass(frozen=True)
class Failure:
    """What ended a run early, and in which module."""

    exception: Exception
    module: str

    def __str__(self) -> str:
        return first_line(self.exception)


@dataclass
class Recording:
    """What one run of one side showed.

    Args:
        observed: what passed, by key, in order of execution.
        parameter_gradients: the gradient of the probe by each parameter, under torch's names.
        failure: what ended the run early; the rest holds what came before.
    """

    observed: dict[Key, Observed]
    parameter_gradients: dict[str, np.ndarray]
    failure: Failure | None = None

    @property
    def outputs(self) -> Arrays:
        """The arrays that the model returned, in order."""
        return self.observed[OUTPUTS].arrays

    @property
    def input_gradients(self) -> dict[str, np.ndarray]:
        """The gradient of the probe by each floating-point input, under its argument's name."""
        inputs = self.observed[INPUTS]
        pairs = zip(inputs.point.arguments, inputs.gradients, strict=True)
        return {name: gradient for name, gradient in pairs if gradient is not None}

    def require_finished(self) -> "Recording":
        """The recording itself, or the exception that ended the run."""
        if self.failure:
            raise self.failure.exception
        return self

    def callers(self) -> dict[str, str]:
        """Who calls each module."""
        points = (observed.point for observed in self.observed.values())
        return {point.name: point.module for point in points if point.kind == "input"}

    def gradient_norms(self) -> dict[str, float]:
        """The norm of every gradient, by what it was taken by."""
        norms = {name: _norm(grad) for name, grad in self.parameter_gradients.items()}
        for observed in self.observed.values():
            for name, grad in zip(observed.array_names(), observed.gradients, strict=False):
                norms[name] = _norm(grad)
        return norms


def _norm(gradient: np.ndarray | None) -> float:
    return 0.0 if gradient is None else float(np.linalg.norm(gradient.astype(np.float64)))


@dataclass(frozen=True)
class Substitutes:
    """What takes the place of a run's own values, point by point.

    Args:
        arrays: the values that later code reads instead of the run's own.
        weights: what the values computed at each point are weighted with in the probe.
    """

    arrays: Mapping[Key, Arrays]
    weights: Mapping[Key, list[np.ndarray | None]]


class Walk:
    """Names the points of one run and hands the values of each to `visit`."""

    def __init__(self, visit: Visit, rename: Callable[[str], str] = lambda name: name):
        self.visit, self.rename = visit, rename
        self.stack: list[str] = []
        self._calls: Counter[str] = Counter()
        self._taps: Counter[str] = Counter()

    def enter(self, name: str, arguments: tuple[str, ...], arrays: list[Any]) -> list[Any]:
        name = self.rename(name)
        self._calls[name] += 1
        caller = self.stack[-1] if self.stack else ""
        name = _numbered(name, self._calls[name])
        self.stack.append(name)
        return self.visit(Point(name, "input", caller, arguments), arrays)

    def leave(self, arrays: list[Any]) -> list[Any]:
        arrays = self.visit(Point(self.stack[-1], "output", self.stack[-1]), arrays)
        self.stack.pop()
        return arrays

    def tap(self, name: str, value: Any) -> Any:
        if not self.stack:
            return value
        module = self.stack[-1]
        full = f"{module}.{name}" if module else name
        self._taps[full] += 1
        return self.visit(Point(_numbered(full, self._taps[full]), "tap", module), [value])[0]


def _numbered(name: str, call: int) -> str:
    return name if call == 1 else f"{name}@{call}"


def without_call_number(name: str) -> str:
    """The module itself, whichever of its calls is meant."""
    return name.split("@")[0]


def display_name(name: str) -> str:
    """A module's name for a reader; the model itself has none."""
    return name or "the model"


def map_arrays(visit: Callable[[list[Any]], list[Any]], tree: Any) -> Any:
    """`tree` with its arrays, in order, replaced by what `visit` makes of them."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = iter(visit([leaf for leaf in leaves if is_array(leaf)]))
    return jax.tree.unflatten(structure, [next(arrays) if is_array(x) else x for x in leaves])


def map_arguments(
    visit: Callable[[tuple[str, ...], list[Any]], list[Any]],
    function: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call after `visit` saw their arrays, in the order of the signature."""
    order = [p for p in inspect.signature(function).parameters if p != "self"]
    names = sorted(kwargs, key=lambda name: order.index(name) if name in order else len(order))
    values = [*args, *(kwargs[name] for name in names)]
    owners = [*order[: len(args)], *["argument"] * (len(args) - len(order)), *names]
    arguments = tuple(
        owner
        for owner, value in zip(owners, values, strict=True)
        for leaf in jax.tree.leaves(value)
        if is_array(leaf)
    )
    new = map_arrays(lambda arrays: visit(arguments, arrays), values)
    return tuple(new[: len(args)]), dict(zip(names, new[len(args) :], strict=True))


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def probe_weights(shapes: Sequence[tuple[int, ...]], dtype: str = "float64") -> list[np.ndarray]:
    """What outputs are weighted with before gradients are taken: fixed, and unlike each other.

    Args:
        dtype: the weights are numbers that it holds, so that a run in it and the float64 truth of
            that run are weighted alike.
    """
    rng = np.random.default_rng(17)
    drawn = (rng.normal(size=shape) for shape in shapes)
    return [np.asarray(weights).astype(jnp.dtype(dtype)).astype(np.float64) for weights in drawn]
