"""An edit, and operations that compute something else in the place of a program's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.programs.program import Operation, Program, Run, Source

Function = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Proposal:
    """Operations that might explain a difference, not tried yet.

    Args:
        operations: to stand in the place of the base's own.
        base, target: what each side does, where the proposal is right.
        fix_base, fix_target: how each side would be made as the other.
    """

    operations: list[Operation]
    base: str
    target: str
    fix_base: str | None = None
    fix_target: str | None = None


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
            old = arrays[index]
            new = program.to_framework(change(program.to_numpy(old)), old)
            return run([*arrays[:index], new, *arrays[index + 1 :]])

        return changed

    return replace(operation, make_run=lambda changes: wrap(operation.make_run(changes)))


def with_output(
    program: Program, operation: Operation, change: Function, extra: Sequence[int] = ()
) -> Operation:
    """The operation with its first output changed, by further values that the change reads."""
    count = len(operation.inputs)

    def wrap(run: Run) -> Run:
        def changed(arrays: Sequence[Any]) -> Sequence[Any]:
            first, *others = run(arrays[:count])
            read = [program.to_numpy(a) for a in arrays[count:]]
            return [program.to_framework(change(program.to_numpy(first), *read), first), *others]

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
        new = function(*(program.to_numpy(a) for a in arrays))
        return [program.to_framework(np.broadcast_to(new, tuple(old.shape)), old)]

    def make_run(changes: Mapping[str, Any]) -> Run:
        return run

    return replace(
        operation, inputs=tuple(inputs), outputs=operation.outputs[:1], make_run=make_run
    )


def reading(operation: Operation, numbers: Mapping[int, int]) -> Operation:
    """The operation reading other values in the place of some of its own."""
    return replace(operation, inputs=tuple(numbers.get(n, n) for n in operation.inputs))
