"""Both sides in a lower precision, each held against the float64 truth where it computes.

A value's own error is that of the operation which made it, from the inputs that it had: the
operation is run once more in float64 on these. Neither framework is right to the last digit, so
the one's error is held against the other's: at most twice as large, and what one rounding of a
result leaves, and in float32 those of a library's function and of a sum over the longest axis
(`parity.judge.precision` derives their size). Sums, statistics and softmaxes are where ports part:
one side takes them in float32, the other in the narrow type.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from parity.align.contents import says_something
from parity.align.layouts import Axes, lay_out
from parity.align.verdict import distance
from parity.judge.precision import LIBRARY_ROUNDINGS, Roundings, rounding_floor
from parity.programs.program import Operation, Program, Source

Matches = Mapping[int, Sequence[tuple[int, Axes]]]


@dataclass(frozen=True)
class Narrowed:
    """One value in a lower precision, on both sides.

    Args:
        errors: of the base and of the target, each of its own operation alone.
        dtypes: that each side holds it in.
        allowed: the error that the larger one may have.
    """

    sources: tuple[Source, Source]
    errors: tuple[float, float]
    dtypes: tuple[str, str]
    allowed: float

    @property
    def equal(self) -> bool:
        return max(self.errors) <= self.allowed


def same_operations(exact: Program, narrow: Program) -> dict[int, int]:
    """The values of a run in float64 beside those of a run in a lower precision, by number.

    A cast that one of them has and the other has not is skipped.
    """
    ours, theirs = (
        [(op.name, op.source.line, len(op.outputs)) for op in program.operations]
        for program in (exact, narrow)
    )
    found = {}
    for kind in ("input", "parameter"):
        numbers = narrow.named(kind)
        found |= {n: numbers[name] for name, n in exact.named(kind).items() if name in numbers}
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            one = exact.operations[block.a + offset]
            other = narrow.operations[block.b + offset]
            found.update(zip(one.outputs, other.outputs, strict=True))
            found.update(zip(one.inputs, other.inputs, strict=False))
    return found


def compare_operations(
    base: Program,
    target: Program,
    matches: Matches,
    narrow: tuple[Program, Program],
    dtype: str,
) -> Iterator[Narrowed]:
    """Every operation of the base whose inputs and output the target has too.

    Args:
        base, target: the runs in float64, whose values agree.
        matches: values of the base, each with those of the target that it is.
        narrow: the runs of both in the lower precision.
    """
    numbers = same_operations(base, narrow[0]), same_operations(target, narrow[1])
    for operation in base.operations:
        output = operation.outputs[0]
        if not says_something(base.values[output].array) or _is_copy(base, operation):
            continue
        ours = _own_error(base, operation, lambda n: _held(narrow[0], numbers[0].get(n)))
        theirs = _own_error(
            base, operation, lambda n: _held_by_target(n, base, matches, narrow[1], numbers[1])
        )
        if ours is None or theirs is None:
            continue
        first = _first_match(output, matches, numbers[1])
        assert first is not None, "the target's error was measured at it"
        target_number = numbers[1][first]
        producer = narrow[1].producer(target_number)
        longest = max(max(base.values[n].array.shape, default=1) for n in operation.inputs)
        roundings = Roundings(rounded=1, wide=LIBRARY_ROUNDINGS + longest)
        allowed = 2 * min(ours, theirs) + rounding_floor(dtype, roundings)
        yield Narrowed(
            (operation.source, producer.source if producer else operation.source),
            (ours, theirs),
            (
                narrow[0].values[numbers[0][output]].dtype,
                narrow[1].values[target_number].dtype,
            ),
            allowed,
        )


def _own_error(base: Program, operation: Operation, held) -> float | None:
    """How far a side's value is from what the operation makes of the side's own inputs."""
    inputs = [held(n) for n in operation.inputs]
    output = held(operation.outputs[0])
    if output is None or any(array is None for array in inputs):
        return None
    arrays = [
        base.to_framework(array.astype(np.float64), base.arrays[n])
        if base.values[n].is_float
        else base.arrays[n]
        for n, array in zip(operation.inputs, inputs, strict=True)
    ]
    exact = base.to_numpy(operation.run(arrays)[0])
    error = distance(output.astype(np.float64), exact)
    return error if np.isfinite(error) else None


def _held(program: Program, number: int | None) -> np.ndarray | None:
    return None if number is None else program.values[number].array


def _held_by_target(
    number: int, base: Program, matches: Matches, narrow: Program, numbers: Mapping[int, int]
) -> np.ndarray | None:
    """The target's value in the place of one of the base's, as the base lays it out."""
    wanted = base.values[number].array
    if not base.values[number].is_float or not says_something(wanted):
        return wanted
    target = _first_match(number, matches, numbers)
    if target is None:
        return None
    axes = dict(matches[number])[target]
    return lay_out(narrow.values[numbers[target]].array, axes, wanted.shape)


def _first_match(number: int, matches: Matches, numbers: Mapping[int, int]) -> int | None:
    return next((n for n, _ in matches.get(number, ()) if n in numbers), None)


def _is_copy(program: Program, operation: Operation) -> bool:
    """Whether an operation only moves its values."""
    output = program.values[operation.outputs[0]].array
    return any(
        program.values[n].array.size == output.size
        and np.array_equal(np.sort(program.values[n].array, None), np.sort(output, None))
        for n in operation.inputs
    )
