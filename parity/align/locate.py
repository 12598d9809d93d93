"""The earliest pair of values whose exchange makes everything after it agree.

One side, the base, is replayed; the other, the target, is only read. Values of the base that the
target holds too are matched. What only one side computes inside is no fault, so an unmatched value
counts only where it leads to an unmatched output. A fault ends at the earliest value of the base
that can be given a value of the target so that operations after it compute what the target has:
what differs is computed before the pair, and what comes after it is right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from parity.align.contents import Contents, says_something
from parity.align.layouts import Axes, lay_out, layouts, matching_layouts, same
from parity.programs.program import Operation, Program, Value, reached_from

# How many operations after a pair are run to see whether the sides agree again.
HORIZON = 60
_MOST_PARTS = 4
# Exchanges tried for one fault: in a recurrence nearly all values have one size.
_MOST_TRIALS = 250


@dataclass
class State:
    """A program as far as it has been made to agree: its operations and values now.

    Args:
        operations: the program's own, or edited ones in their places.
        replaced: values that were taken from the target.
        native: every value as it is now, as the framework holds it.
        arrays: the same as NumPy holds it.
    """

    program: Program
    operations: list[Operation]
    replaced: dict[int, np.ndarray]
    native: dict[int, Any]
    arrays: dict[int, np.ndarray]

    @classmethod
    def start(cls, program: Program) -> "State":
        arrays = {value.number: value.array for value in program.values}
        return cls(program, list(program.operations), {}, dict(program.arrays), arrays)

    @cached_property
    def readers(self) -> dict[int, list[Operation]]:
        return self.program.readers()

    def with_changes(
        self, replaced: Mapping[int, np.ndarray], edited: Sequence[Operation] = ()
    ) -> "State":
        """The state after further replacements and edits."""
        operations = list(self.operations)
        for operation in edited:
            operations[operation.number] = operation
        new = State(
            self.program,
            operations,
            {**self.replaced, **replaced},
            dict(self.native),
            {**self.arrays, **replaced},
        )
        for number, array in replaced.items():
            new.native[number] = self._native(number, array)
        for number, array in self._run(replaced, edited, len(operations)):
            new.native[number] = array
            new.arrays[number] = self.program.to_numpy(array)
        return new

    def after(
        self,
        replaced: Mapping[int, np.ndarray],
        edited: Sequence[Operation] = (),
        horizon: int = HORIZON,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The values that change, in order, of the next `horizon` operations that read them.

        It ends early where an operation cannot be run on what it is given.
        """
        try:
            for number, array in self._run(replaced, edited, horizon):
                yield number, self.program.to_numpy(array)
        except Exception:
            return

    def _native(self, number: int, array: np.ndarray) -> Any:
        return self.program.to_framework(array, self.program.arrays[number])

    def _run(
        self, replaced: Mapping[int, np.ndarray], edited: Sequence[Operation], horizon: int
    ) -> Iterator[tuple[int, Any]]:
        edits = {operation.number: operation for operation in edited}
        changed = {n: self._native(n, a) for n, a in replaced.items()}
        fixed = {*replaced, *self.replaced}
        starts = [op.number for n in replaced for op in self.readers.get(n, ())]
        count = 0
        for number in range(min([*edits, *starts], default=len(self.operations)),
                            len(self.operations)):  # fmt: skip
            operation = edits.get(number, self.operations[number])
            if number not in edits and not any(n in changed for n in operation.inputs):
                continue
            arrays = [changed[n] if n in changed else self.native[n] for n in operation.inputs]
            for output, array in zip(operation.outputs, operation.run(arrays), strict=True):
                if output not in fixed:
                    changed[output] = array
                    yield output, array
            count += 1
            if count == horizon:
                return

    def adjoints(self, weights: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The gradients of `sum(weights * values)` by every value, as the program is now."""
        return self.program.adjoints(weights, self.operations, self.arrays)


@dataclass(frozen=True)
class Pair:
    """A value of the base and the value of the target that takes its place.

    Args:
        array: the target's value as the base lays it out.
        gained: how many values after it agree with the target then, which did not before.
        settled: whether the last value that the exchange changes nearby is one of these.
        whole: a later pair that this one and a few more make together.
    """

    base: int
    target: int
    array: np.ndarray
    gained: int
    settled: bool
    whole: "Pair | None" = None


class Alignment:
    """The base in its present state beside the target.

    Args:
        tolerance: the norm-wise difference up to which two values are the same.
    """

    def __init__(self, state: State, target: Program, outputs: Mapping[int, int], tolerance: float):
        self.state, self.target, self.tolerance = state, target, tolerance
        self.outputs = outputs
        self.contents = Contents(target.values, tolerance)
        self.matches: dict[int, list[tuple[int, Axes]]] = {}
        for number, array in state.arrays.items():
            found = list(self.contents.find(array))
            if found:
                self.matches[number] = found
        matched_targets = {n for found in self.matches.values() for n, _ in found}
        self.unmatched = self._leading_to_output(state.program, set(self.matches), outputs.keys())
        self.missing = self._leading_to_output(target, matched_targets, outputs.values())
        values = [target.values[n] for n in self.missing]
        self.missing_contents = Contents(values, tolerance)

    def _leading_to_output(self, program: Program, matched: set[int], outputs) -> list[int]:
        """Unmatched values from which unmatched values lead to an unmatched output, in order."""
        found = {n for n in outputs if n not in matched}
        for operation in reversed(program.operations):
            if any(n in found for n in operation.outputs):
                found |= {n for n in operation.inputs if n not in matched}
        return sorted(n for n in found if _counts(program.values[n]))

    def best_pair(self, tried: int = 12) -> Pair | None:
        """The earliest pair after which all nearby agrees, else the one after which most does.

        Where several exchanges before it do the same together, it is the first of these: a wrong
        table enters a layer as cosines and as sines.
        """
        best = self._best(self.pairs(), tried) or self._best(self.pairs(self.bottlenecks), tried)
        return best and self._first_before(best)

    def _best(self, pairs: Iterator[Pair], tried: int) -> Pair | None:
        best = None
        for pair in islice(pairs, tried):
            if pair.settled or best is None or pair.gained > best.gained:
                best = pair
            if pair.settled:
                break
        return best

    @cached_property
    def bottlenecks(self) -> set[int]:
        """Unmatched values after which no other unmatched value of before is read.

        Where values of one size abound, exchanges of these are tried though others are too many.
        Tables do not count: they are read in every layer.
        """
        candidates = {n for n in self.unmatched if says_something(self.state.arrays[n])}
        candidates -= _tables(self.state.program)
        last_read = {
            n: operation.number
            for operation in self.state.program.operations
            for n in operation.inputs
            if n in candidates
        }
        found, reach = set(), -1
        for n in sorted(candidates):
            producer = self.state.program.producer(n)
            if producer is not None and reach <= producer.number:
                found.add(n)
            reach = max(reach, last_read.get(n, -1))
        return found

    def _first_before(self, goal: Pair) -> Pair:
        """The first of a few earlier pairs that together give the value of this one."""
        inside = {n for operation in self.window(goal.base) for n in operation.outputs}
        inside.discard(goal.base)
        alignment, first = self, None
        for _ in range(_MOST_PARTS):
            pair = next(alignment.pairs(inside), None)
            if pair is None:
                break
            first = first or pair
            state = alignment.state.with_changes({pair.base: pair.array})
            if same(state.arrays[goal.base], goal.array, self.tolerance):
                return replace(first, whole=goal)
            alignment = Alignment(state, self.target, self.outputs, self.tolerance)
        if first and self._repairs(first, inside):
            return replace(first, whole=goal)
        return goal

    def _repairs(self, pair: Pair, inside: Collection[int]) -> bool:
        """Whether an exchange makes values agree that lie before the end of the difference."""
        own = Contents([_as_value(pair.array)], self.tolerance)
        return any(
            number in inside
            and number not in self.matches
            and not own.holds(array)
            and self.missing_contents.holds(array)
            for number, array in self.state.after({pair.base: pair.array})
        )

    def pairs(self, among: Collection[int] | None = None) -> Iterator[Pair]:
        """Pairs after whose exchange operations agree again, the earliest first.

        Args:
            among: the values of the base to look at; None: all.
        """
        trials = 0
        for base in self.unmatched:
            if among is not None and base not in among:
                continue
            array = self.state.arrays[base]
            if not says_something(array):
                continue
            for target in self.missing_contents.of_size(array.size):
                held = self.target.values[target].array
                for axes in layouts(held.shape, array.shape):
                    trials += 1
                    if trials > _MOST_TRIALS:
                        return
                    laid_out = lay_out(held, axes, array.shape)
                    gained, settled = self._gained(base, laid_out)
                    if gained:
                        yield Pair(base, target, laid_out, gained, settled)
                        break

    def _gained(self, base: int, array: np.ndarray) -> tuple[int, bool]:
        """How many values after `base` the target holds once it is replaced, without copies.

        And whether the last of those that change is one of them.
        """
        if base in self.outputs:
            found = self._is_target_output(base, array)
            return int(found), found
        own = Contents([_as_value(array)], self.tolerance)
        gained, settled = 0, False
        for number, computed in self.state.after({base: array}):
            if number in self.matches or not says_something(computed) or own.holds(computed):
                continue
            settled = self.missing_contents.holds(computed)
            gained += settled
        return gained, settled

    def _is_target_output(self, base: int, array: np.ndarray) -> bool:
        wanted = self.target.values[self.outputs[base]].array
        return wanted.shape == array.shape and np.array_equal(wanted, array)

    def outputs_agree(self) -> bool:
        return outputs_agree(self.state, self.target, self.outputs, self.tolerance)

    def window(self, base: int) -> list[Operation]:
        """The operations of the base between matched values and `base`, in order."""
        return _between(self.state.program, self.state.operations, base, set(self.matches))

    def target_window(self, target: int) -> list[Operation]:
        """The operations of the target between matched values and `target`, in order."""
        matched = {n for found in self.matches.values() for n, _ in found}
        return _between(self.target, self.target.operations, target, matched)


def _tables(program: Program) -> set[int]:
    """The values that no floating-point input and no parameter enters."""
    starts = [
        v.number
        for v in program.values
        if v.kind == "parameter" or (v.kind == "input" and v.is_float)
    ]
    return {v.number for v in program.values} - reached_from(starts, program.operations)


def outputs_agree(
    state: State, target: Program, outputs: Mapping[int, int], tolerance: float
) -> bool:
    """Whether every output of the base is the target's that it is paired with, in some layout."""
    return all(
        output_agrees(state, target, ours, theirs, tolerance) for ours, theirs in outputs.items()
    )


def output_agrees(state: State, target: Program, ours: int, theirs: int, tolerance: float) -> bool:
    """Whether an output of the base is one of the target's, in some layout."""
    found = matching_layouts(target.values[theirs].array, state.arrays[ours], tolerance)
    return next(found, None) is not None


def _counts(value: Value) -> bool:
    return value.kind == "computed" or value.kind == "constant"


def _as_value(array: np.ndarray) -> Value:
    return Value(0, array, str(array.dtype), "computed")


def _between(
    program: Program, operations: Sequence[Operation], number: int, matched: set[int]
) -> list[Operation]:
    wanted, found = {number}, []
    for operation in reversed(operations):
        if any(n in wanted for n in operation.outputs):
            found.append(operation)
            wanted |= {n for n in operation.inputs if n not in matched}
    return found[::-1]
