"""An edit, and operations that compute something else in the place of a program's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor

from parity.observe.arrays import as_tensor
from parity.programs.program import Operation, Program, Run, Source

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Proposal:
    """Operations that might explain a difference, not tried yet.

    Args:
        operations: to stand in the place of the base's own.
        base, target: what each side does, where the proposal is right.
        fix_base, fix_target: how each side would be made as the other.
        origin: the line of the base that computed what the operations read wrongly.
    """

    operations: list[Operation]
    base: str
    target: str
    fix_base: str | None = None
    fix_target: str | None = None
    origin: Source | None = None


@dataclass(frozen=True, kw_only=True)
class Edit(Proposal):
    """A proposal that reproduces the target.

    Args:
        base_source, target_source: the line of the edited operation, and of the target's that
            computes the same.
    """

    base_source: Source
    target_source: Source

    @property
    def fix(self) -> str | None:
        """How the target would be made as the base."""
        return self.fix_target

    def __str__(self) -> str:
        return f"{self.target}, where the base has {self.base}"


def with_input(program: Program, operation: Operation, index: int, change: Function) -> Operation:
    """The operation with one input changed before it reads it."""

    def wrap(run: Run) -> Run:
        def changed(arrays: Sequence[Any]) -> Sequence[Any]:
            new = _native(program, change, arrays[index], [arrays[index]])
            return run([*arrays[:index], new, *arrays[index + 1 :]])

        return changed

    return replace(operation, make_run=lambda changes: wrap(operation.make_run(changes)))


def constant(array: np.ndarray) -> Function:
    """The change of a value into this array, whatever it was."""
    tensor = torch.tensor(np.ascontiguousarray(array))
    return lambda _: tensor


def with_output(
    program: Program, operation: Operation, change: Function, extra: Sequence[int] = ()
) -> Operation:
    """The operation with its first output changed, by further values that the change reads."""
    count = len(operation.inputs)

    def wrap(run: Run) -> Run:
        def changed(arrays: Sequence[Any]) -> Sequence[Any]:
            first, *others = run(arrays[:count])
            return [_native(program, change, first, [first, *arrays[count:]]), *others]

        return changed

    return replace(
        operation,
        inputs=(*operation.inputs, *extra),
        make_run=lambda changes: wrap(operation.make_run(changes)),
    )


def computing(
    program: Program, operation: Operation, inputs: Sequence[int], function: Function
) -> Operation:
    """An operation that computes a function of these values in the place of its first output."""
    old = program.arrays[operation.outputs[0]]

    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        return [_native(program, function, old, arrays)]

    def make_run(changes: Mapping[str, Any]) -> Run:
        return run

    return replace(
        operation, inputs=tuple(inputs), outputs=operation.outputs[:1], make_run=make_run
    )


def _native(program: Program, function: Function, like: Any, arrays: Sequence[Any]) -> Any:
    """The function of a framework's arrays, with the shape and dtype of one of them."""
    if program.framework == "torch":
        return _shaped(function(*arrays), like.shape).to(like.dtype)
    return _of_jax(function, jax.ShapeDtypeStruct(like.shape, like.dtype))(*arrays)


def _shaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    shape = tuple(shape)
    return (
        tensor.reshape(shape) if tensor.numel() == prod(shape) else tensor.expand(shape)
    ).clone()


def _of_jax(function: Function, like: jax.ShapeDtypeStruct) -> Callable:
    """A function of tensors as one of jax's arrays, which may be traced and differentiated."""

    def tensors(arrays: Sequence[Any]) -> list[Tensor]:
        return [as_tensor(np.asarray(a)) for a in arrays]

    def compute(*arrays: Any) -> np.ndarray:
        return _shaped(function(*tensors(arrays)), like.shape).numpy().astype(like.dtype)

    def pull_back(arrays: Sequence[Any], gradient: Any) -> list[np.ndarray]:
        leaves = [t.requires_grad_(t.is_floating_point()) for t in tensors(arrays)]
        with torch.enable_grad():
            computed = _shaped(function(*leaves), like.shape)
        found = torch.autograd.grad(
            computed, leaves, as_tensor(np.asarray(gradient)), allow_unused=True
        )
        return [
            np.zeros(leaf.shape, a.dtype) if g is None else g.numpy().astype(a.dtype)
            for leaf, g, a in zip(leaves, found, arrays, strict=True)
        ]

    @jax.custom_vjp
    def run(*arrays: Any) -> Any:
        return jax.pure_callback(compute, like, *arrays)

    def backward(arrays: Any, gradient: Any) -> tuple:
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        return tuple(jax.pure_callback(pull_back, shapes, arrays, gradient))

    run.defvjp(lambda *arrays: (run(*arrays), arrays), backward)
    return run


def on_copies(operation: Operation) -> Operation:
    """The operation on copies of what it reads, which it might write."""

    def wrap(run: Run) -> Run:
        return lambda arrays: run([a.clone() if isinstance(a, Tensor) else a for a in arrays])

    return replace(operation, make_run=lambda changes: wrap(operation.make_run(changes)))


def reading(operation: Operation, numbers: Mapping[int, int]) -> Operation:
    """The operation reading other values in the place of some of its own."""
    return replace(operation, inputs=tuple(numbers.get(n, n) for n in operation.inputs))
