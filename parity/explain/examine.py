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
from parity.observe.points import Given, Run


class Side(Protocol):
    """One framework's model under observation."""

    framework: str

    def parameters(self) -> dict[str, np.ndarray]: ...
    def run(self) -> Run: ...
    def run_with(self, given: Given) -> Run: ...


class Reference:
    """The side that is taken to be right; its runs are made once, however many are held to it."""

    def __init__(self, side: Side):
        self.side = side

    @cached_property
    def free(self) -> Run:
        return self.side.run()

    @cached_property
    def given(self) -> Given:
        return localize.locals_of(self.free)

    @cached_property
    def local(self) -> Run:
        return self.side.run_with(self.given)

    @cached_property
    def parameters(self) -> dict[str, np.ndarray]:
        return self.side.parameters()


@dataclass
class Examination:
    """What was found about a pair.

    Args:
        parameters: parameters that are not the same on both sides, and what they are instead.
        first: the first fault of the free runs.
        local: every module whose own code differs.
        causes: the causes of each local fault, by module.
        growth: the error of every value of the free runs, in order of execution.
        error: what kept a side from running.
        free: the free runs of the reference and of the candidate.
    """

    parameters: dict[str, Cause] = field(default_factory=dict)
    first: Fault | None = None
    local: list[Fault] = field(default_factory=list)
    causes: dict[str, list[Cause]] = field(default_factory=dict)
    growth: list[tuple[str, float]] = field(default_factory=list)
    error: str | None = None
    free: tuple[Run, Run] | None = None

    @property
    def equal(self) -> bool:
        return not (self.parameters or self.first or self.local or self.error)


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
    free = candidate.run()
    found.free = reference.free, free
    found.error = _error(reference, candidate, free)
    if found.error:
        return found
    found.first = localize.first_fault(reference.free, free, tolerance)
    found.growth = localize.growth(reference.free, free)
    if found.first is None and not local_always:
        return found
    local = candidate.run_with(reference.given)
    found.local = localize.local_faults(reference.local, local, tolerance)
    for fault in found.local:
        params = reference.parameters
        found.causes[fault.module] = diagnose(
            fault, reference.local, local, params, sizes, tolerance
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


def _error(reference: Reference, candidate: Side, free: Run) -> str | None:
    """What kept a side from running: the reference at all, the candidate before any value."""
    if reference.free.error:
        return f"{reference.side.framework} does not run: {reference.free.error[0]}"
    if free.error and not free.passed:
        return f"{candidate.framework} does not run: {free.error[0]}"
    return None
