"""One pair of models looked at whole: parameters, values, gradients, faults and their causes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from parity.explain import localize
from parity.explain.causes.evidence import Cause
from parity.explain.causes.parameters import different_parameter
from parity.explain.diagnose import diagnose
from parity.explain.localize import Fault
from parity.judge.errors import FLOAT64_TOLERANCE
from parity.observe.points import Recording, Substitutes


class Side(Protocol):
    """One framework's model under observation."""

    framework: str

    def parameters(self) -> dict[str, np.ndarray]: ...
    def record(self) -> Recording: ...
    def record_with(self, substitutes: Substitutes) -> Recording: ...


class Reference:
    """The side that is taken to be right; its runs are made once, however many are held to it."""

    def __init__(self, side: Side):
        self.side = side

    @cached_property
    def recording(self) -> Recording:
        return self.side.record()

    @cached_property
    def substitutes(self) -> Substitutes:
        return localize.substitutes_from(self.recording)

    @cached_property
    def local_recording(self) -> Recording:
        return self.side.record_with(self.substitutes)

    @cached_property
    def parameters(self) -> dict[str, np.ndarray]:
        return self.side.parameters()


@dataclass
class Examination:
    """What was found about a pair.

    Args:
        parameters: parameters that are not the same on both sides, and what they are instead.
        first_fault: the first fault of the free runs.
        local_faults: every module whose own code differs.
        causes: the causes of each local fault, by module.
        error_growth: the error of every value of the free runs, in order of execution.
        error: what kept a side from running.
        recordings: the free runs of the reference and of the candidate.
    """

    parameters: dict[str, Cause] = field(default_factory=dict)
    first_fault: Fault | None = None
    local_faults: list[Fault] = field(default_factory=list)
    causes: dict[str, list[Cause]] = field(default_factory=dict)
    error_growth: list[tuple[str, float]] = field(default_factory=list)
    error: str | None = None
    recordings: tuple[Recording, Recording] | None = None

    @property
    def equal(self) -> bool:
        return not (self.parameters or self.first_fault or self.local_faults or self.error)


def examine(
    reference: Reference,
    candidate: Side,
    sizes: Mapping[str, float],
    tolerance: float = FLOAT64_TOLERANCE,
    local_always: bool = True,
) -> Examination:
    """Compare the candidate with the reference: where it departs, and why.

    Args:
        sizes: numbers that a solved constant may be made of, by name.
        tolerance: norm-wise, of every value and gradient.
        local_always: run the local comparison of a pair that agrees, too.
    """
    found = Examination(parameters=parameter_faults(reference.parameters, candidate.parameters()))
    free = candidate.record()
    found.recordings = reference.recording, free
    found.error = _what_stopped(reference, candidate, free)
    if found.error:
        return found
    found.first_fault = localize.first_fault(reference.recording, free, tolerance)
    found.error_growth = localize.error_growth(reference.recording, free)
    if found.first_fault is None and not local_always:
        return found
    local = candidate.record_with(reference.substitutes)
    found.local_faults = localize.local_faults(reference.local_recording, local, tolerance)
    for fault in found.local_faults:
        params = reference.parameters
        found.causes[fault.module] = diagnose(
            fault, reference.local_recording, local, params, sizes, tolerance
        )
    return found


def parameter_faults(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> dict[str, Cause]:
    """Parameters that differ in name, shape or value; nothing at all should."""
    found = {
        name: different_parameter(name, ours[name], theirs[name], ours, theirs)
        for name in ours
        if name in theirs and not np.array_equal(ours[name], theirs[name])
    }
    for name in set(ours) ^ set(theirs):
        side = "reference" if name in ours else "candidate"
        found[name] = Cause(f"only the {side} has it", "build the same layers")
    return found


def _what_stopped(reference: Reference, candidate: Side, free: Recording) -> str | None:
    """What kept a side from running: the reference at all, the candidate before any value."""
    if reference.recording.failure:
        return f"{reference.side.framework} does not run: {reference.recording.failure}"
    if free.failure and not free.observed:
        return f"{candidate.framework} does not run: {free.failure}"
    return None
