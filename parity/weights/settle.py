"""Settle what a map is not certain of by what the two sides compute."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from parity.align.contents import Contents
from parity.programs.program import Program
from parity.weights.layout import Layout
from parity.weights.sections import Section, group_sections, join_layouts
from parity.weights.weight_map import Choice, Entry, WeightMap

# Values are the same up to the rounding of float64.
_TOLERANCE = 1e-9


def settle(
    weight_map: WeightMap,
    torch_arrays: Mapping[str, np.ndarray],
    torch_program: Program,
    jax_program: Program,
    sections: Sequence[Section] = (),
    most_runs: int = 200,
) -> WeightMap:
    """The map under which most of JAX's values are values of torch's.

    A layer given the wrong weights computes values that the other side does not have, and so does
    everything behind it: the alternatives are tried in the order of use, each by running what it
    changes, and the one is kept after which more values agree.

    Args:
        weight_map: with alternatives.
        torch_arrays: in float64.
        torch_program: recorded with these.
        jax_program: recorded with what the map makes of these.
        sections: the parts of JAX's arrays that the map takes for arrays.
        most_runs: how many alternatives are tried at most.
    """
    trial = _Trial(weight_map, torch_arrays, torch_program, jax_program, sections)
    best, runs = trial.agreeing({}), 0
    for choice in _in_order(weight_map.choices, jax_program, sections):
        for entries in (e for other in choice.others for e in trial.variants(choice, other)):
            if runs >= most_runs or trial.finished:
                break
            runs += 1
            if (count := trial.agreeing(entries)) > best:
                best = count
                trial.accept(entries)
                break
    changed = [e for e in trial.entries.values() if e not in weight_map.entries]
    return weight_map.replaced(changed) if changed else weight_map


def _in_order(
    choices: Sequence[Choice], program: Program, sections: Sequence[Section]
) -> Iterator[Choice]:
    """The choices in the order in which the program reads their arrays."""
    numbers = program.named("parameter") | {s.name: s.value.number for s in sections}
    readers = program.readers()

    def first_use(choice: Choice) -> int:
        used = [readers[numbers[e.jax]][0].number for e in choice.entries
                if numbers.get(e.jax) in readers]  # fmt: skip
        return min(used, default=len(program.operations))

    yield from sorted(choices, key=first_use)


def _owners(entries: Iterable[Entry]) -> set[str]:
    """The torch layers whose arrays are read."""
    return {name.rpartition(".")[0] for entry in entries for name in entry.torch}


class _Trial:
    """The map as it is settled so far, and the agreement that it brings about."""

    def __init__(
        self,
        weight_map: WeightMap,
        torch_arrays: Mapping[str, np.ndarray],
        torch_program: Program,
        jax_program: Program,
        sections: Sequence[Section],
    ):
        self.entries = {entry.jax: entry for entry in weight_map.entries}
        self.choices = weight_map.choices
        self.torch_arrays, self.program = torch_arrays, jax_program
        self.numbers = jax_program.named("parameter")
        self.sections = group_sections(sections)
        self.whole = {section.name: section.array for section in sections}
        computed = [v for v in torch_program.values if v.kind == "computed"]
        self.contents = Contents(computed, _TOLERANCE)
        self.computed = [v.number for v in jax_program.values if v.kind == "computed"]
        self.replaced: dict[int, np.ndarray] = {}
        self.held = {n: self.contents.holds(jax_program.values[n].array) for n in self.computed}
        self.finished = all(self.held.get(n, True) for n in jax_program.outputs.values())

    def variants(self, choice: Choice, other: Sequence[Entry]) -> Iterator[dict[str, Entry]]:
        """The exchange alone, and with the other arrays of the same two torch layers."""
        exchanged = self.exchange(choice, other)
        if exchanged is None:
            return
        yield exchanged
        ours = _owners(self.entries[entry.jax] for entry in other)
        theirs = _owners(other)
        whole = dict(exchanged)
        for companion in self.choices:
            held = [self.entries[entry.jax] for entry in companion.entries]
            if _owners(held) == ours and not any(entry.jax in whole for entry in held):
                for answer in companion.others:
                    if _owners(answer) == theirs:
                        whole |= self.exchange(companion, answer) or {}
                        break
        if len(whole) > len(exchanged):
            yield whole

    def exchange(self, choice: Choice, other: Sequence[Entry]) -> dict[str, Entry] | None:
        """The entries after a layer has taken another's weights, and that one those of the layer.

        None where the other layer cannot take them.
        """
        given = {entry.jax: entry for entry in other}
        ours = {name for jax_name in given for name in self.entries[jax_name].torch}
        theirs = {name for entry in other for name in entry.torch}
        displaced = {
            e.jax for e in self.entries.values() if e.jax not in given and theirs & set(e.torch)
        }
        if ours == theirs or not displaced:
            return given
        for candidate in self.choices:
            for answer in (candidate.entries, *candidate.others):
                reads = {name for entry in answer for name in entry.torch}
                if displaced == {entry.jax for entry in answer} and reads == ours:
                    return given | {entry.jax: entry for entry in answer}
        return None

    def agreeing(self, entries: Mapping[str, Entry]) -> int:
        """How many values of JAX's are values of torch's with these entries in place of others."""
        return sum(self._held_with(entries).values())

    def accept(self, entries: Mapping[str, Entry]) -> None:
        self.held = self._held_with(entries)
        self.replaced |= self._arrays(entries)
        self.entries |= entries
        self.finished = all(self.held.get(n, True) for n in self.program.outputs.values())

    def _held_with(self, entries: Mapping[str, Entry]) -> dict[int, bool]:
        changed = self.replaced | self._arrays(entries)
        found = self.program.replay(changed) if changed else {}
        new = {n: self.contents.holds(array) for n, array in found.items() if n in self.held}
        return self.held | new

    def _arrays(self, entries: Mapping[str, Entry]) -> dict[int, np.ndarray]:
        """The whole arrays that entries make or make parts of, by number."""
        known = {**self.entries, **entries}
        names = dict.fromkeys(self.whole.get(name, name) for name in entries)
        return {
            self.numbers[name]: np.asarray(self._layout(name, known).apply(self.torch_arrays), "d")
            for name in names
            if name in self.numbers
        }

    def _layout(self, name: str, known: Mapping[str, Entry]) -> Layout:
        parts = self.sections.get(name)
        return join_layouts(parts, known) if parts else known[name].to_jax
