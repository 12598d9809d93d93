"""Where two runs differ: free-running, and with every piece of code fed the reference's values.

Free-running, each side reads what itself computed, and the first point that differs names the
fault; what comes after may differ for that reason alone. In the local run every value that passes
a point is replaced by the reference's, forward and backward, so each piece of code between two
points is judged by itself: a late fault is not hidden by an early one, and a module is blamed for
its own code, never for what it was given or for what it called.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parity.judge.errors import gradient_floors, relative_error
from parity.observe.points import (
    Observed,
    Point,
    Recording,
    Substitutes,
    display_name,
    without_call_number,
)


@dataclass(frozen=True)
class Fault:
    """A module whose own code computes something else.

    Args:
        module: its name, "" for the model itself.
        stage: forward, or backward where the forward pass of the module agrees.
        how: free-running, or local: with every value it reads given.
        point: what differs first.
        error: by how much, norm-wise; infinite where a side is not finite or has another shape.
        detail: what to say where there is no number for it.
    """

    module: str
    stage: Literal["forward", "backward"]
    how: Literal["free-running", "local"]
    point: str
    error: float
    detail: str = ""

    def __str__(self) -> str:
        size = self.detail or f"error {self.error:.1e}"
        return f"{display_name(self.module)}: {self.point} ({size})"


def substitutes_from(run: Recording) -> Substitutes:
    """What the local runs read, and how they weight what they compute: the reference's own."""
    return Substitutes(
        {key: observed.arrays for key, observed in run.observed.items()},
        {key: observed.gradients for key, observed in run.observed.items()},
    )


def error_growth(reference: Recording, candidate: Recording) -> list[tuple[str, float]]:
    """The error of every point of the free runs, in order of execution."""
    return [
        (str(observed.point), _largest_error(observed, candidate.observed[key]))
        for key, observed in reference.observed.items()
        if key in candidate.observed and observed.point.kind != "input"
    ]


def first_fault(reference: Recording, candidate: Recording, tolerance: float) -> Fault | None:
    """The first point of the free runs that differs, forward; else the last one, backward."""
    forward = next(_forward(reference, candidate, tolerance, "free-running"), None)
    if forward is not None or candidate.failure:
        return forward
    backward = list(_backward(reference, candidate, tolerance, "free-running"))
    return backward[-1] if backward else None


def local_faults(reference: Recording, candidate: Recording, tolerance: float) -> list[Fault]:
    """Every module whose own code differs, once, in order of execution."""
    found: dict[str, Fault] = {}
    for fault in _forward(reference, candidate, tolerance, "local"):
        found.setdefault(fault.module, fault)
    if not candidate.failure:
        for fault in _backward(reference, candidate, tolerance, "local"):
            found.setdefault(fault.module, fault)
    return list(found.values())


def _forward(reference: Recording, candidate: Recording, tolerance: float, how) -> Iterator[Fault]:
    for key, observed in reference.observed.items():
        point = observed.point
        if key in candidate.observed:
            fault = _point_fault(point, observed, candidate.observed[key], tolerance, how)
            if fault:
                yield fault
        elif candidate.failure:
            stop = candidate.failure
            yield Fault(stop.module, "forward", how, f"stops before {point}", np.inf, str(stop))
            return
        elif point.kind == "input" and _has_parameters(point.name, reference, candidate):
            yield Fault(point.module, "forward", how, str(point), np.inf, "never called")


def _point_fault(point: Point, ours: Observed, theirs: Observed, tolerance, how) -> Fault | None:
    counts = len(ours.arrays), len(theirs.arrays)
    if counts[0] != counts[1]:
        detail = f"{counts[1]} arrays where the reference has {counts[0]}"
        return Fault(point.module, "forward", how, str(point), np.inf, detail)
    shapes = [(a.shape, b.shape) for a, b in zip(ours.arrays, theirs.arrays, strict=True)]
    odd = next(((a, b) for a, b in shapes if a != b), None)
    if odd:
        detail = f"shape {odd[1]} where the reference has {odd[0]}"
        return Fault(point.module, "forward", how, str(point), np.inf, detail)
    error = _largest_error(ours, theirs)
    if error <= tolerance:
        return None
    detail = "not finite" if np.isinf(error) else ""
    return Fault(point.module, "forward", how, str(point), error, detail)


def _largest_error(reference: Observed, candidate: Observed) -> float:
    pairs = zip(candidate.arrays, reference.arrays, strict=False)
    return max((relative_error(a, b) for a, b in pairs), default=0.0)


def _backward(reference: Recording, candidate: Recording, tolerance: float, how) -> Iterator[Fault]:
    """Gradients that differ, each with the module whose code they flow through."""
    callers = reference.callers()
    floors = gradient_floors(reference.gradient_norms())
    for key, observed in reference.observed.items():
        if key not in candidate.observed:
            continue
        triples = zip(
            candidate.observed[key].gradients,
            observed.gradients,
            observed.array_names(),
            strict=False,
        )
        errors = [
            relative_error(a, b, floors[n])
            for a, b, n in triples
            if a is not None and b is not None
        ]
        if errors and max(errors) > tolerance:
            blamed = _module_reading(observed.point, callers)
            yield Fault(blamed, "backward", how, f"gradient by {observed.point}", max(errors))
    for name, grad in reference.parameter_gradients.items():
        error = relative_error(candidate.parameter_gradients.get(name, grad), grad, floors[name])
        if error > tolerance:
            module = name.rpartition(".")[0]
            yield Fault(module, "backward", how, f"gradient by {name}", error)


def _module_reading(point: Point, callers: dict[str, str]) -> str:
    """Whose code reads the value that observed."""
    match point.kind:
        case "input":
            return point.name
        case "output":
            return callers[point.name] if point.name else ""
        case "tap":
            return point.module


def _has_parameters(name: str, reference: Recording, candidate: Recording) -> bool:
    """Whether a module of this name owns parameters on both sides: then both should call it."""
    prefix = f"{without_call_number(name)}."
    sides = (reference.parameter_gradients, candidate.parameter_gradients)
    return all(any(n.startswith(prefix) for n in side) for side in sides)
