"""A difference: the operations on both sides of it, and what an edit must reproduce."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parity.align.contents import Contents
from parity.align.layouts import lay_out, layouts, same
from parity.align.locate import Alignment, Pair, State
from parity.explain.edits.words import stem
from parity.programs.program import Operation, Program, Source, Value, reached_from

# So many operations behind an edit are run until what it must reproduce has been computed.
_LONGEST_RUN = 10_000
# So many are run for one difference in all, and so many trials go on though the pair's own value is
# not reached.
_MOST_RUNS = 60_000
_MOST_DETOURS = 300
# An explanation rests on at least so many numbers.
FEWEST_NUMBERS = 6


@dataclass(frozen=True)
class Block:
    """A part of the window that makes one value of another of the same shape.

    Args:
        start: the value that goes in, read by `readers`.
        end: the operation whose output comes out.
        path: from the end back to the start, in names, lines and places of inputs; blocks of one
            path are calls of the same code.
    """

    start: int
    end: Operation
    readers: tuple[tuple[int, int], ...]
    path: tuple[tuple[str, int, int], ...]


class Search:
    """One pair, what lies in its windows, and what an edit must reproduce."""

    def __init__(self, alignment: Alignment, pair: Pair):
        self.alignment, self.pair = alignment, pair
        self.state: State = alignment.state
        self.program: Program = alignment.state.program
        self.target: Program = alignment.target
        self.tolerance = alignment.tolerance
        self.window = alignment.window(pair.base)
        self.target_window = alignment.target_window(pair.target)
        self.checkpoints = self._checkpoints()
        self._spent = self._detours = 0

    def _checkpoints(self) -> dict[int, np.ndarray]:
        """What agrees with the target once the pair is exchanged, beyond copies of the pair."""
        pair, alignment = self.pair, self.alignment
        if pair.base in alignment.outputs:
            return {pair.base: pair.array}
        own = Contents([Value(0, pair.array, "", "computed")], self.tolerance)
        return {
            number: array
            for number, array in self.state.after({pair.base: pair.array})
            if number not in alignment.matches
            and not own.holds(array)
            and alignment.missing_contents.holds(array)
        }

    def array(self, number: int) -> np.ndarray:
        return self.state.arrays[number]

    @cached_property
    def computed(self) -> set[int]:
        """The values that the window computes."""
        return {n for operation in self.window for n in operation.outputs}

    @cached_property
    def leaves(self) -> list[int]:
        """The values that the window reads and does not compute."""
        read = {n for operation in self.window for n in operation.inputs}
        return sorted(read - self.computed)

    @cached_property
    def target_values(self) -> list[int]:
        """What the target's window reads and computes."""
        found = {n for op in self.target_window for n in (*op.inputs, *op.outputs)}
        return sorted(found | {self.pair.target})

    @cached_property
    def target_leaves(self) -> list[int]:
        computed = {n for operation in self.target_window for n in operation.outputs}
        return [n for n in self.target_values if n not in computed]

    @cached_property
    def matched_leaves(self) -> list[int]:
        """The values of the base that the target's window reads."""
        wanted = set(self.target_leaves)
        return [
            number
            for number, found in self.alignment.matches.items()
            if any(theirs in wanted for theirs, _ in found)
        ]

    @cached_property
    def static(self) -> set[int]:
        """The base's values that no input enters and no parameter that the target has too."""
        return _static(self.program, self.state.operations, set(self.alignment.matches))

    @cached_property
    def target_static(self) -> set[int]:
        matched = {n for found in self.alignment.matches.values() for n, _ in found}
        return _static(self.target, self.target.operations, matched)

    @cached_property
    def target_fed(self) -> set[int]:
        """The target's values that an input enters."""
        inputs = self.target.named("input").values()
        return reached_from(inputs, self.target.operations)

    @cached_property
    def sizes(self) -> list[int]:
        """The lengths of axes of the base's values."""
        return sorted({n for value in self.program.values for n in value.array.shape})

    @cached_property
    def target_numbers(self) -> list[float]:
        """The numbers written in the target's window."""
        found: dict[float, None] = {}
        for operation in self.target_window:
            for attribute in operation.attributes.values():
                if isinstance(attribute, int | float) and not isinstance(attribute, bool):
                    found[float(attribute)] = None
        for number in self.target_values:
            held = self.target.values[number].array
            if number in self.target_static and held.dtype.kind in "if" and held.size:
                first = float(held.ravel()[0])
                if held.size == 1 or (held == first).all():
                    found[first] = None
        return list(found)

    def descendants(self, number: int) -> set[int]:
        """What the window computes from a value."""
        return reached_from([number], self.window) - {number}

    def are_scores(self, number: int) -> bool:
        """Whether a value is a product of two computed matrices, scaled, masked or viewed."""
        for _ in range(12):
            operation = self.program.producer(number)
            if operation is None or self.array(number).ndim < 3:
                return False
            moving = [n for n in operation.inputs if n not in self.static]
            if stem(operation) in ("bmm", "dot_general", "matmul", "baddbmm"):
                given = [self.program.values[n].kind for n in moving]
                return given == ["computed", "computed"]
            if len(moving) != 1:
                return False
            number = moving[0]
        return False

    def in_layout_of(self, number: int, shape: Sequence[int]) -> Iterator[np.ndarray]:
        """A value of the target in every layout it may have as this shape, the plain one first."""
        held = self.target.values[number].array
        if held.size != int(np.prod(shape)):
            return
        for axes in layouts(held.shape, tuple(shape)):
            yield lay_out(held, axes, tuple(shape))

    def groups(self) -> Iterator[list[Operation]]:
        """Operations to be edited alike: one alone, then those that the same code asked for."""
        yield from ([operation] for operation in self.window)
        found: dict[tuple, list[Operation]] = {}
        for operation in self.window:
            fixed = tuple(n for n in operation.inputs if n in self.static)
            key = (operation.source.file, operation.source.line, operation.name)
            for kept in (key, (*key, fixed)):
                found.setdefault(kept, []).append(operation)
        seen = set()
        for operations in found.values():
            numbers = tuple(operation.number for operation in operations)
            if len(numbers) > 1 and numbers not in seen:
                seen.add(numbers)
                yield operations

    @cached_property
    def blocks(self) -> list[Block]:
        return [block for operation in self.window for block in self._blocks_to(operation)]

    def _blocks_to(self, end: Operation) -> Iterator[Block]:
        wanted = self.array(end.outputs[0])
        if wanted.dtype.kind != "f" or wanted.size < FEWEST_NUMBERS:
            return
        producers = {n: op for op in self.window for n in op.outputs}
        paths: dict[int, tuple] = {}
        queue: list[tuple[Operation, tuple]] = [(end, ())]
        reads: dict[int, list[tuple[int, int]]] = {}
        done = set()
        while queue:
            operation, path = queue.pop(0)
            if operation.number in done:
                continue
            done.add(operation.number)
            for index, number in enumerate(operation.inputs):
                step = (*path, (operation.name, operation.source.line, index))
                reads.setdefault(number, []).append((operation.number, index))
                paths.setdefault(number, step)
                if number in producers:
                    queue.append((producers[number], step))
        for number, path in paths.items():
            held = self.array(number)
            if held.shape == wanted.shape and held.dtype.kind == "f" and number not in self.static:
                yield Block(number, end, tuple(reads[number]), path)

    def alike(self) -> Iterator[list[Block]]:
        """Blocks alone, the shortest first, then all calls of the same code."""
        ordered = sorted(self.blocks, key=lambda block: len(block.path))
        found: dict[tuple, list[Block]] = {}
        for block in ordered:
            yield [block]
            found.setdefault(block.path, []).append(block)
        for blocks in found.values():
            if len(blocks) > 1:
                yield blocks

    def evaluate(self, edited: Sequence[Operation]) -> tuple[np.ndarray, np.ndarray] | None:
        """The first value that must be reproduced, as an edit makes it, and as it must be."""
        for number, array in self.state.after({}, edited, _LONGEST_RUN):
            if number in self.checkpoints:
                return array, self.checkpoints[number]
        return None

    @property
    def is_exhausted(self) -> bool:
        """Whether as many operations have been run as one difference is worth."""
        return self._spent > _MOST_RUNS

    def accepts(self, edited: Sequence[Operation]) -> bool:
        """Whether an edit reproduces everything that the exchange of the pair does."""
        if not edited:
            return False
        left = set(self.checkpoints)
        for number, array in self.state.after({}, edited, _LONGEST_RUN):
            self._spent += 1
            if number == self.pair.base and not self._is_worth_more(array):
                return False
            if number in left:
                wanted = self.checkpoints[number]
                if array.shape != wanted.shape or not same(array, wanted, self.tolerance):
                    return False
                left.discard(number)
                if not left:
                    return True
            elif number in self.alignment.matches and not self._still_matches(number, array):
                return False
        return False

    def _is_worth_more(self, array: np.ndarray) -> bool:
        """Whether to run on past the pair: its value is reached, or what follows may not mind.

        A softmax, say, does not mind that all scores of a row are moved alike.
        """
        wanted = self.pair.array
        if array.shape == wanted.shape and same(array, wanted, self.tolerance):
            return True
        self._detours += 1
        return self._detours <= _MOST_DETOURS

    def _still_matches(self, number: int, array: np.ndarray) -> bool:
        before = self.array(number)
        if array.shape == before.shape and same(array, before, self.tolerance):
            return True
        return self.alignment.contents.holds(array)

    def target_source(self, edited: Sequence[Operation]) -> Source:
        """The line of the target that computes what an edit computes first."""
        for number, array in self.state.after({}, edited, _LONGEST_RUN):
            if number in self.computed or number in self.checkpoints:
                for theirs, _ in self.alignment.missing_contents.find(array):
                    producer = self.target.producer(theirs)
                    if producer is not None and producer.source.line:
                        return producer.source
        lines = [op.source for op in self.target_window if op.source.line]
        return lines[-1] if lines else Source("", 0, "", "", "")


def _static(program: Program, operations: Sequence[Operation], matched: set[int]) -> set[int]:
    """What is made of constants alone; an array that one side alone is given is a constant too."""
    starts = [
        v.number
        for v in program.values
        if v.kind == "input" or (v.kind == "parameter" and v.number in matched)
    ]
    return {v.number for v in program.values} - reached_from(starts, operations)
