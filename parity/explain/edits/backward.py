"""Equal values with other gradients: which operation hands back another part of them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.align.layouts import Axes, lay_out, matching_layouts, same
from parity.align.locate import State
from parity.explain.edits.edit import Edit, Proposal, reading
from parity.explain.edits.search import FEWEST_NUMBERS
from parity.explain.edits.words import number, spoken, stem
from parity.programs.program import Operation, Program, Pullback, Run, Source

# Gradients are sums of many products: they agree to fewer digits than values do.
_TOLERANCE = 1e-9
_STOPS = ("detach", "stop_gradient", "alias")

Matches = Mapping[int, Sequence[tuple[int, Axes]]]
Adjoints = Mapping[int, np.ndarray]


@dataclass(frozen=True)
class _Part:
    """What one operation hands back to a value, through one of its inputs."""

    operation: Operation
    index: int
    gradient: np.ndarray


def find_gradient_edit(
    base: State,
    target: Program,
    matches: Matches,
    base_adjoints: Adjoints,
    target_adjoints: Adjoints,
) -> Edit | None:
    """The operation whose other derivative explains the latest gradient that differs.

    Args:
        base: a program whose values the target has.
        matches: target's values that hold what a value of the base does, as `Alignment.matches`.
        base_adjoints, target_adjoints: gradients by every value, from `adjoints`.
    """
    search = _Gradients(base, target, matches, base_adjoints, target_adjoints)
    reconnected = search.reconnected()
    if reconnected is not None:
        return reconnected
    for root in search.roots:
        if search.agrees(root) or base.arrays[root].size < FEWEST_NUMBERS:
            continue
        wanted = search.wanted(root)
        for proposal in search.proposals(root, wanted):
            if search.accepts(root, wanted, proposal.operations):
                edited = proposal.operations[0]
                fixes = f"use {proposal.target}", f"use {proposal.base}"
                return Edit(
                    proposal.operations,
                    proposal.base,
                    proposal.target,
                    *fixes,
                    base_source=edited.source,
                    target_source=search.target_source(root, edited),
                )
    return None


class _Gradients:
    def __init__(
        self,
        state: State,
        target: Program,
        matches: Matches,
        base_adjoints: Adjoints,
        target_adjoints: Adjoints,
    ):
        self.state, self.target, self.matches = state, target, matches
        self.ours, self.theirs = base_adjoints, target_adjoints
        self.copies: dict[tuple[int, ...], list[int]] = {}
        for n, found in matches.items():
            self.copies.setdefault(tuple(sorted(m for m, _ in found)), []).append(n)

    @property
    def roots(self) -> list[int]:
        """The first of each set of copies, the latest set first."""
        return sorted((min(numbers) for numbers in self.copies.values()), reverse=True)

    def _class(self, root: int) -> list[int]:
        return self.copies[tuple(sorted(m for m, _ in self.matches[root]))]

    def given(
        self, root: int, state: State | None = None, adjoints: Adjoints | None = None
    ) -> np.ndarray:
        """The base's gradient by a value and its copies, as if they were one."""
        state = self.state if state is None else state
        adjoints = self.ours if adjoints is None else adjoints
        members = self._class(root)
        total = np.zeros(self.state.arrays[root].shape)
        if len(members) == 1:
            return adjoints.get(root, total)
        program = state.program
        for n, gradient in _leaving(program, state.operations, members, adjoints, state.native):
            total = total + self._as_root(root, n, gradient)
        return total

    def agrees(self, root: int) -> bool:
        """Whether the target has this gradient, by one of the copies or by all as one."""
        ours = self.ours.get(root)
        for m, axes in self.matches[root]:
            theirs = self.theirs.get(m)
            if ours is None or theirs is None:
                continue
            if same(lay_out(theirs, axes, ours.shape), ours, _TOLERANCE):
                return True
        return same(self.wanted(root), self.given(root), _TOLERANCE)

    def wanted(self, root: int) -> np.ndarray:
        """The target's gradient by what holds the same, as the base lays it out."""
        axes = dict(self.matches[root])
        total = np.zeros(self.state.arrays[root].shape)
        if len(axes) == 1:
            (m,) = axes
            return lay_out(self.theirs[m], axes[m], total.shape) if m in self.theirs else total
        target = self.target
        for m, gradient in _leaving(
            target, target.operations, list(axes), self.theirs, target.arrays
        ):
            total = total + lay_out(gradient, axes[m], total.shape)
        return total

    def _as_root(self, root: int, n: int, gradient: np.ndarray) -> np.ndarray:
        array, wanted = self.state.arrays[n], self.state.arrays[root]
        axes = next(matching_layouts(array, wanted, _TOLERANCE), tuple(range(array.ndim)))
        return lay_out(gradient, axes, wanted.shape)

    def _parts(self, root: int) -> Iterator[_Part]:
        """What each operation that reads the value, or a copy, hands back."""
        members = set(self._class(root))
        for operation in self.state.operations:
            if members & {*operation.outputs} or not members & {*operation.inputs}:
                continue
            for part in _handed(
                self.state.program, operation, members, self.ours, self.state.native
            ):
                n = operation.inputs[part.index]
                yield replace(part, gradient=self._as_root(root, n, part.gradient))

    def proposals(self, root: int, wanted: np.ndarray) -> Iterator[Proposal]:
        gap = wanted - self.given(root)
        parts = list(self._parts(root))
        for line in dict.fromkeys(part.operation.source for part in parts):
            alike = [part for part in parts if part.operation.source == line]
            yield from self._scaled(alike, gap)
        yield from self._let_through(root)
        for part in parts:
            yield from self._scaled([part], gap)
            yield from self._passed(root, part, gap)
            yield from self._other_rows(part, wanted)

    def _scaled(self, parts: list[_Part], gap: np.ndarray) -> Iterator[Proposal]:
        """The parts times one factor; zero where the target lets nothing through."""
        total = np.sum([part.gradient for part in parts], 0)
        length = float(np.vdot(total, total))
        if length == 0:
            return
        factor = 1 + float(np.vdot(total, gap)) / length
        factor = float(np.round(factor, 9))
        if not same((factor - 1) * total, gap, 1e-6):
            return
        line = _line(parts[0].operation)
        base = f"the gradient through {line}"
        if factor == 0:
            target = f"the gradient through {line} is stopped"
        elif factor == -1:
            target = f"the gradient through {line} is reversed"
        else:
            target = f"the gradient through {line} is scaled by {number(factor)}"
        scaled = [_handing(part, lambda old, _, f=factor: f * old if f else None) for part in parts]
        yield Proposal(scaled, base, target)

    def _let_through(self, root: int) -> Iterator[Proposal]:
        """Copies behind which the base stops the gradient."""
        members = set(self._class(root))
        for operation in self.state.operations:
            if not members & {*operation.inputs}:
                continue
            for output in operation.outputs:
                copies = self._class(output) if output in self.matches else []
                for n in copies:
                    stop = self.state.program.producer(n)
                    if stop is not None and stem(stop) in _STOPS:
                        line = _line(stop)
                        base = f"the gradient through {line} is stopped"
                        part = _Part(stop, 0, self.state.arrays[n])
                        passing = _handing(part, lambda _, gradient: gradient)
                        yield Proposal([passing], base, f"the gradient through {line} passes")

    def _passed(self, root: int, part: _Part, gap: np.ndarray) -> Iterator[Proposal]:
        """What comes back is handed on as it is: straight-through, or not stopped."""
        output = part.operation.outputs[0]
        n = part.operation.inputs[part.index]
        if output not in self.ours or self.ours[output].shape != self.state.arrays[n].shape:
            return
        handed = self._as_root(root, n, self.ours[output])
        if not same(handed - part.gradient, gap, 1e-6):
            return
        line = _line(part.operation)
        if stem(part.operation) in _STOPS:
            texts = f"the gradient through {line} is stopped", f"the gradient through {line} passes"
        else:
            what = f"{spoken(part.operation)} ({line})"
            texts = f"the derivative of {what}", f"straight-through: {what} hands its gradient on"
        yield Proposal([_handing(part, lambda _, gradient: gradient)], *texts)

    def _other_rows(self, part: _Part, wanted: np.ndarray) -> Iterator[Proposal]:
        """Rows of an embedding that are, or are not, trained."""
        own = part.operation.attributes.get("padding_idx")
        if stem(part.operation) != "embedding":
            return
        own = -1 if own is None else own
        still = np.flatnonzero(~wanted.reshape(len(wanted), -1).any(1))
        for row in (-1, *(int(i) for i in still)):
            if row != own:
                texts = [
                    f"row {r} of the embedding gets no gradient (padding_idx={r})"
                    if r >= 0
                    else "every row of the embedding gets its gradient"
                    for r in (own, row)
                ]
                yield Proposal([part.operation.edited(padding_idx=row)], texts[0], texts[1])

    def reconnected(self) -> Edit | None:
        """A parameter whose copy is read in its place, so that this gradient never reaches it."""
        for name, n in self.state.program.named("parameter").items():
            if n not in self.matches or n not in self.ours:
                continue
            shape = self.state.arrays[n].shape
            copies = {c for c in self._class(n) if self.state.arrays[c].shape == shape} - {n}
            readers = [op for op in self.state.operations if copies & {*op.inputs}]
            edited = [reading(op, dict.fromkeys(copies, n)) for op in readers]
            found = [(m, axes) for m, axes in self.matches[n] if m in self.theirs]
            wanted = [lay_out(self.theirs[m], axes, shape) for m, axes in found]
            if not edited or any(same(w, self.ours[n], _TOLERANCE) for w in wanted):
                continue
            mended = self._with_edits(edited)[1].get(n)
            if mended is not None and any(same(w, mended, _TOLERANCE) for w in wanted):
                line = _line(readers[0])
                return Edit(
                    edited,
                    f"a copy of {name} in {line}, which hands it no gradient",
                    f"{name} itself in {line}",
                    f"read {name} itself",
                    f"detach {name} there",
                    base_source=readers[0].source,
                    target_source=self.target_source(n, readers[0]),
                )
        return None

    def _with_edits(self, edited: Sequence[Operation]) -> tuple[State, Adjoints]:
        outputs = self.state.program.outputs.values()
        state = self.state.with_changes({}, edited)
        return state, state.adjoints({n: self.ours[n] for n in outputs if n in self.ours})

    def accepts(self, root: int, wanted: np.ndarray, edited: Sequence[Operation]) -> bool:
        """Whether the gradient is the target's then, and no later one has ceased to be."""
        state, adjoints = self._with_edits(edited)
        if not same(self.given(root, state, adjoints), wanted, _TOLERANCE):
            return False
        later = [n for n in self.roots if n > root]
        return all(
            same(self.given(n, state, adjoints), self.wanted(n), _TOLERANCE)
            for n in later
            if len(self._class(n)) == len(self.matches[n]) == 1 and self.agrees(n)
        )

    def target_source(self, root: int, edited: Operation) -> Source:
        """The line of the target that reads the value and computes what the operation does."""
        theirs = {m for n in edited.outputs for m, _ in self.matches.get(n, ())}
        reading = {m for m, _ in self.matches[root]}
        readers = [op for op in self.target.operations if reading & {*op.inputs} and op.source.line]
        for operation in readers:
            if theirs & {*operation.outputs}:
                return operation.source
        return readers[0].source if readers else Source("", 0, "", "", "")


def _leaving(
    program: Program,
    operations: Sequence[Operation],
    members: Sequence[int],
    adjoints: Adjoints,
    native: Mapping[int, Any],
) -> Iterator[tuple[int, np.ndarray]]:
    """What is handed back to copies from outside: not by what makes one copy of another."""
    inside, last = set(members), max(members)
    leading, within = set(inside), set()
    for operation in reversed(operations):
        outputs = {*operation.outputs}
        if outputs and min(outputs) <= last and leading & outputs:
            within.add(operation.number)
            leading.update(operation.inputs)
    returned = {n: adjoints[n] for n in inside & {*program.outputs.values()} if n in adjoints}
    for operation in operations:
        if not inside & {*operation.inputs}:
            continue
        for part in _handed(program, operation, inside, adjoints, native):
            n = operation.inputs[part.index]
            if n in returned:
                # What is left of an output's own gradient is what it is weighed with.
                returned[n] = returned[n] - part.gradient
            if operation.number not in within:
                yield n, part.gradient
    yield from returned.items()


def _handed(
    program: Program,
    operation: Operation,
    members: Collection[int],
    adjoints: Adjoints,
    native: Mapping[int, Any],
) -> Iterator[_Part]:
    """What an operation hands back to these of its inputs."""
    if not any(n in adjoints for n in operation.outputs):
        return
    gradients = [
        program.to_framework(adjoints[n], native[n]) if n in adjoints else None
        for n in operation.outputs
    ]
    pulled = operation.pull_back([native[n] for n in operation.inputs], gradients)
    for index, (n, gradient) in enumerate(zip(operation.inputs, pulled, strict=True)):
        if n in members:
            shape = tuple(native[n].shape)
            yield _Part(
                operation,
                index,
                np.zeros(shape) if gradient is None else program.to_numpy(gradient),
            )


def _line(operation: Operation) -> str:
    return f"`{operation.source.code}`" if operation.source.code else spoken(operation)


def _handing(part: _Part, change: Callable[[Any, Any], Any]) -> Operation:
    """The operation, whose pullback hands something else to one input."""
    operation, index = part.operation, part.index

    def differentiate(run: Run) -> Pullback:
        pull_back = operation.differentiate(run)

        def changed(inputs: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
            pulled = list(pull_back(inputs, gradients))
            if pulled[index] is not None or gradients[0] is not None:
                pulled[index] = change(pulled[index], gradients[0])
            return pulled

        return changed

    return replace(operation, differentiate=differentiate)
