"""Follow one run of a model: every place where a value passes, by name, in order of execution.

A value passes where a module is called (its inputs), where it returns (its output), and where
`transformer_spec.taps.tap` names one inside it. Both frameworks' sides walk the same points.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
import torch

Arrays = list[np.ndarray]
Key = tuple[str, str]
Touch = Callable[["Point", list[Any]], list[Any]]


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
        return f"{self.kind} of {shown(self.name)}" if self.kind != "tap" else self.name


@dataclass
class Passed:
    """What passed at a point: arrays, their own dtypes, and the gradient of the probe by each.

    NumPy has no bfloat16: such an array is held in float32. A gradient is None where none is taken.
    """

    point: Point
    arrays: Arrays
    dtypes: list[str]
    grads: list[np.ndarray | None] = field(default_factory=list)


@dataclass
class Run:
    """One run of one side.

    Args:
        passed: what passed, by key, in order of execution.
        param_grads: the gradient of the probe by each parameter, under torch-style names.
        error: what ended the run early, and in which module; the rest holds what came before.
    """

    passed: dict[Key, Passed]
    param_grads: dict[str, np.ndarray]
    error: tuple[str, str] | None = None

    def callers(self) -> dict[str, str]:
        """Who calls each module."""
        points = (passed.point for passed in self.passed.values())
        return {point.name: point.module for point in points if point.kind == "input"}


@dataclass(frozen=True)
class Given:
    """What is put in the place of a run's own values, point by point.

    Args:
        arrays: the values that later code reads instead of the run's own.
        weights: what the values computed at each point are weighted with in the probe.
    """

    arrays: Mapping[Key, Arrays]
    weights: Mapping[Key, list[np.ndarray | None]]


class Walk:
    """Names the points of one run and hands the values of each to `touch`."""

    def __init__(self, touch: Touch, rename: Callable[[str], str] = lambda name: name):
        self.touch, self.rename = touch, rename
        self.stack: list[str] = []
        self._calls: Counter[str] = Counter()
        self._taps: Counter[str] = Counter()

    def enter(self, name: str, arguments: tuple[str, ...], arrays: list[Any]) -> list[Any]:
        name = self.rename(name)
        self._calls[name] += 1
        caller = self.stack[-1] if self.stack else ""
        name = numbered(name, self._calls[name])
        self.stack.append(name)
        return self.touch(Point(name, "input", caller, arguments), arrays)

    def leave(self, arrays: list[Any]) -> list[Any]:
        arrays = self.touch(Point(self.stack[-1], "output", self.stack[-1]), arrays)
        self.stack.pop()
        return arrays

    def tap(self, name: str, value: Any) -> Any:
        if not self.stack:
            return value
        module = self.stack[-1]
        full = f"{module}.{name}" if module else name
        self._taps[full] += 1
        return self.touch(Point(numbered(full, self._taps[full]), "tap", module), [value])[0]


def numbered(name: str, call: int) -> str:
    return name if call == 1 else f"{name}@{call}"


def first_call(name: str) -> str:
    """The module itself, whichever of its calls is meant."""
    return name.split("@")[0]


def shown(name: str) -> str:
    return name or "the model"


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | torch.Tensor)


def through(touch: Callable[[list[Any]], list[Any]], tree: Any) -> Any:
    """`tree` with its arrays, in order, replaced by what `touch` makes of them."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = iter(touch([leaf for leaf in leaves if is_array(leaf)]))
    return jax.tree.unflatten(structure, [next(arrays) if is_array(x) else x for x in leaves])


def touch_call(
    touch: Callable[[tuple[str, ...], list[Any]], list[Any]],
    function: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call after `touch` saw their arrays, in the order of the signature."""
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
    new = through(lambda arrays: touch(arguments, arrays), values)
    return tuple(new[: len(args)]), dict(zip(names, new[len(args) :], strict=True))


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def to_numpy(array: Any) -> np.ndarray:
    """An array of either framework; what NumPy has no type for comes as float32."""
    if isinstance(array, torch.Tensor):
        array = array.detach()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy(force=True)
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def dtype_name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def is_float(array: np.ndarray) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def probe_weights(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """What outputs are weighted with before gradients are taken: fixed, and unlike each other."""
    rng = np.random.default_rng(17)
    return [rng.normal(size=shape) for shape in shapes]
