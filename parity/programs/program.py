"""A run as a list of primitive operations on numbered values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

Kind = Literal["input", "parameter", "constant", "computed"]
Results = tuple[dict[int, np.ndarray], dict[int, np.ndarray]]
Run = Callable[[Sequence[Any]], Sequence[Any]]
Pullback = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Source:
    """The line of code that asked for an operation.

    Args:
        module: the path of the module call that it belongs to, where the library has modules.
    """

    file: str
    line: int
    code: str
    function: str
    module: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.line else "no source line"


@dataclass
class Value:
    """One array of a run.

    Args:
        array: as NumPy holds it, of the dtype it was computed in (bfloat16 comes as float32).
        dtype: its name.
        name: of inputs and parameters.
        producer: the number of the operation that computed it; None: it was given.
    """

    number: int
    array: np.ndarray
    dtype: str
    kind: Kind
    name: str = ""
    producer: int | None = None

    @property
    def is_float(self) -> bool:
        return self.array.dtype.kind == "f"


@dataclass
class Operation:
    """One primitive operation.

    Args:
        name: as the framework calls it: "aten.mul.Tensor", "dot_general".
        inputs, outputs: numbers of values.
        make_run: from changed attributes to a function from the framework's arrays to the
            framework's arrays.
        differentiate: from such a function to its pullback: from the inputs and the gradients by
            the outputs (None: zero) to those by the inputs (None: none).
        attributes: what else decides what it computes: axes, scalars, flags.
    """

    number: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    source: Source
    make_run: Callable[[Mapping[str, Any]], Run]
    differentiate: Callable[[Run], Pullback]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def run(self) -> Run:
        """What it computes from arrays of its framework."""
        return self.make_run({})

    def pull_back(self, inputs: Sequence[Any], gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients by its inputs, from those by its outputs."""
        return self.differentiate(self.run)(inputs, gradients)

    def edited(self, **changes: Any) -> "Operation":
        """The same operation with other attributes."""
        make_run = self.make_run
        return replace(
            self,
            make_run=lambda more: make_run({**changes, **more}),
            attributes={**self.attributes, **changes},
        )


@dataclass
class Program:
    """A recorded run.

    Args:
        arrays: the framework's own arrays by number of the value.
        outputs: what the model returned, by name in its structure.
        to_framework: makes the framework's array of a NumPy array that takes a value's place.
        to_numpy: the inverse.
        rerun: runs the model again, as the framework runs it, with some inputs and parameters
            changed, by number: the outputs, and the gradients of `sum(weights * outputs)` by the
            inputs and parameters, by number.
        compile: makes one program of a function of the framework's arrays that runs once.
    """

    framework: Literal["torch", "jax"]
    values: list[Value]
    operations: list[Operation]
    arrays: dict[int, Any]
    outputs: dict[str, int]
    to_framework: Callable[[np.ndarray, Any], Any]
    to_numpy: Callable[[Any], np.ndarray]
    rerun: Callable[[Mapping[int, np.ndarray], Mapping[int, np.ndarray]], Results]
    compile: Callable[[Callable], Callable] = field(default=lambda function: function)

    def named(self, kind: Kind) -> dict[str, int]:
        """The numbers of the inputs or of the parameters, by name."""
        return {v.name: v.number for v in self.values if v.kind == kind}

    def replay(self, replaced: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Every value that changes when these, by number, take the place of recorded ones."""
        native = {n: self.to_framework(a, self.arrays[n]) for n, a in replaced.items()}
        return {number: self.to_numpy(array) for number, array in self._replay(native).items()}

    def _replay(self, replaced: Mapping[int, Any]) -> dict[int, Any]:
        changed = dict(replaced)
        for operation in self.operations:
            if not any(n in changed for n in operation.inputs):
                continue
            arrays = [changed.get(n, self.arrays.get(n)) for n in operation.inputs]
            for number, array in zip(operation.outputs, operation.run(arrays), strict=True):
                if number not in replaced:
                    changed[number] = array
        return changed

    def rerun_operations(
        self, changed: Mapping[int, np.ndarray], weights: Mapping[int, np.ndarray]
    ) -> Results:
        """What `rerun` gives, from the operations alone."""
        native = {n: self.to_framework(a, self.arrays[n]) for n, a in changed.items()}
        computed = self.compile(self._replay)(native)
        values = {number: self.to_numpy(array) for number, array in computed.items()}
        outputs = {n: values.get(n, self.values[n].array) for n in self.outputs.values()}
        given = [v.number for v in self.values if v.kind in ("input", "parameter") and v.is_float]
        found = self.adjoints(weights, changed={**values, **changed}) if weights else {}
        zeros = {n: np.zeros(self.values[n].array.shape) for n in given}
        return outputs, {n: found.get(n, zeros[n]) for n in given}

    def adjoints(
        self,
        weights: Mapping[int, np.ndarray],
        operations: Sequence[Operation] | None = None,
        changed: Mapping[int, np.ndarray] | None = None,
    ) -> dict[int, np.ndarray]:
        """The gradient of `sum(weights * values)` by every value that it depends on.

        Args:
            weights: by number of the value.
            operations: those to differentiate, in order, in place of the program's own.
            changed: values at which they are differentiated in place of the recorded ones.
        """
        arrays = self.arrays | {
            n: self.to_framework(a, self.arrays[n]) for n, a in (changed or {}).items()
        }
        given = {n: self.to_framework(w, self.arrays[n]) for n, w in weights.items()}
        listed = self.operations if operations is None else operations
        read = {n for operation in listed for n in operation.inputs}

        def sweep(arrays: Mapping[int, Any], given: Mapping[int, Any]) -> dict[int, Any]:
            found = dict(given)
            for operation in reversed(listed):
                self._pull_back(operation, arrays, found)
            return found

        found = self.compile(sweep)({n: arrays[n] for n in read}, given)
        return {number: self.to_numpy(gradient) for number, gradient in found.items()}

    def _pull_back(
        self, operation: Operation, arrays: Mapping[int, Any], found: dict[int, Any]
    ) -> None:
        """Add what the gradients by an operation's outputs give to those by its inputs."""
        ours = [found.get(n) for n in operation.outputs]
        if all(gradient is None for gradient in ours):
            return
        pulled = operation.pull_back([arrays[n] for n in operation.inputs], ours)
        for number, gradient in zip(operation.inputs, pulled, strict=True):
            if gradient is not None and self.values[number].is_float:
                before = found.get(number)
                found[number] = gradient if before is None else before + gradient

    def readers(self) -> dict[int, list[Operation]]:
        """The operations that read each value."""
        found: dict[int, list[Operation]] = {}
        for operation in self.operations:
            for number in set(operation.inputs):
                found.setdefault(number, []).append(operation)
        return found

    def producer(self, number: int) -> Operation | None:
        producer = self.values[number].producer
        return None if producer is None else self.operations[producer]


def reached_from(starts: Iterable[int], operations: Iterable[Operation]) -> set[int]:
    """These values and all that operations, in their order, compute of them."""
    reached = set(starts)
    for operation in operations:
        if not reached.isdisjoint(operation.inputs):
            reached.update(operation.outputs)
    return reached
