"""Every fault between two programs: found, taken out, and the next one looked for.

The base is made into the target fault by fault, by the edit that explains it or, where nothing
does, by the target's own value. Once the outputs agree the list is complete: that is its proof.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from parity.align.locate import Alignment, Pair, State, output_agrees
from parity.align.verdict import distance
from parity.explain.edits.edit import Edit
from parity.explain.edits.find import find_edit
from parity.programs.program import Operation, Program, Source

MOST_FAULTS = 64
_MOST_PLACES = 4


@dataclass
class Fault:
    """One difference of code.

    Args:
        base_places, target_places: the lines it lies between on either side, the likeliest first.
        error: how far the values differ that it ends with.
        edit: what explains it; None: nothing known does.
        count: in how many layers it was found.
    """

    stage: Literal["forward", "backward"]
    base_places: list[Source]
    target_places: list[Source]
    error: float
    edit: Edit | None = None
    count: int = 1

    def joins(self, other: "Fault") -> bool:
        """Whether another fault is this one in another layer."""
        return (
            self.stage == other.stage
            and _lines(self.base_places) == _lines(other.base_places)
            and _lines(self.target_places) == _lines(other.target_places)
            and _words(self.edit) == _words(other.edit)
        )


@dataclass
class Faults:
    """The faults of a pair.

    Args:
        complete: whether the outputs agree once all of them are taken out.
    """

    found: list[Fault] = field(default_factory=list)
    complete: bool = False


def find_forward_faults(
    base: Program,
    target: Program,
    outputs: Mapping[int, int],
    tolerance: float,
    report: Callable[[str], None] = lambda line: None,
) -> Faults:
    """Take fault after fault out of the base until its outputs are the target's.

    Args:
        outputs: the base's outputs, each with the target's that it is compared with.
        tolerance: the norm-wise difference up to which two values are the same.
        report: is told what is going on.
    """
    faults, state, explained = Faults(), State.start(base), set()
    for _ in range(MOST_FAULTS):
        alignment = Alignment(state, target, outputs, tolerance)
        if alignment.outputs_agree():
            faults.complete = True
            return faults
        pair = alignment.best_pair()
        if pair is None:
            faults.found.append(_unplaced(alignment))
            return faults
        # An edit that left its own difference was none.
        edit = None if pair.base in explained else find_edit(alignment, pair)
        explained.add(pair.base)
        _add(faults.found, _fault(alignment, pair, edit))
        report(f"{len(faults.found)} faults found")
        if edit is None:
            state = state.with_changes({pair.base: pair.array})
        else:
            state = state.with_changes({}, edit.operations)
    return faults


def _add(found: list[Fault], fault: Fault) -> None:
    for known in found:
        if known.joins(fault):
            known.count += 1
            known.error = max(known.error, fault.error)
            return
    found.append(fault)


def _fault(alignment: Alignment, pair: Pair, edit: Edit | None) -> Fault:
    before = alignment.state.arrays[pair.base]
    error = distance(pair.array, before)
    ours = _places(alignment.window(pair.base), alignment.state.readers.get(pair.base, ()))
    readers = alignment.target.readers().get(pair.target, ())
    theirs = _places(alignment.target_window(pair.target), readers)
    if edit is not None:
        ours, theirs = [edit.base_source, *ours], [edit.target_source, *theirs]
    return Fault("forward", distinct(ours), distinct(theirs), error, edit)


def _unplaced(alignment: Alignment) -> Fault:
    """The outputs differ and no exchange of one value makes anything agree."""
    base, target = next(
        (ours, theirs)
        for ours, theirs in alignment.outputs.items()
        if not output_agrees(alignment.state, alignment.target, ours, theirs, alignment.tolerance)
    )
    error = distance(
        alignment.target.values[target].array.reshape(-1), alignment.state.arrays[base].reshape(-1)
    )
    ours, theirs = alignment.window(base), alignment.target_window(target)
    return Fault("forward", distinct(_places(ours[:8])), distinct(_places(theirs[:8])), error)


def _places(window: Sequence[Operation], readers: Sequence[Operation] = ()) -> list[Source]:
    """The lines of a window, the last first; where it has none, those that read the value."""
    lines = [operation.source for operation in reversed(window) if operation.source.line]
    return lines or [operation.source for operation in readers]


def distinct(places: Sequence[Source]) -> list[Source]:
    """The first few different lines."""
    found: dict[tuple[str, int], Source] = {}
    for place in places:
        if place.line:
            found.setdefault((place.file, place.line), place)
    return list(found.values())[:_MOST_PLACES]


def _lines(places: Sequence[Source]) -> set[tuple[str, int]]:
    return {(p.file, p.line) for p in places}


def _words(edit: Edit | None) -> tuple[str, str] | None:
    return None if edit is None else (edit.base, edit.target)
