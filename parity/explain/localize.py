"""Where two runs part: free-running, and with every piece of code fed the reference's values.

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

from parity.judge.errors import gap, gradient_floors
from parity.observe.points import Given, Passed, Point, Run, first_call, shown


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
        return f"{shown(self.module)}: {self.point} ({size})"


def locals_of(run: Run) -> Given:
    """What the local runs read, and how they weight what they compute: the reference's own."""
    return Given(
        {key: passed.arrays for key, passed in run.passed.items()},
        {key: passed.grads for key, passed in run.passed.items()},
    )


def growth(reference: Run, candidate: Run) -> list[tuple[str, float]]:
    """The error of every point of the free runs, in order of execution."""
    return [
        (str(passed.point), _largest(passed, candidate.passed[key]))
        for key, passed in reference.passed.items()
        if key in candidate.passed and passed.point.kind != "input"
    ]


def first_fault(reference: Run, candidate: Run, tolerance: float) -> Fault | None:
    """The first point of the free runs that differs, forward; else the last one, backward."""
    forward = next(_forward(reference, candidate, tolerance, "free-running"), None)
    if forward is not None or candidate.error:
        return forward
    backward = list(_backward(reference, candidate, tolerance, "free-running"))
    return backward[-1] if backward else None


def local_faults(reference: Run, candidate: Run, tolerance: float) -> list[Fault]:
    """Every module whose own code differs, once, in order of execution."""
    found: dict[str, Fault] = {}
    for fault in _forward(reference, candidate, tolerance, "local"):
        found.setdefault(fault.module, fault)
    if not candidate.error:
        for fault in _backward(reference, candidate, tolerance, "local"):
            found.setdefault(fault.module, fault)
    return list(found.values())


def _forward(reference: Run, candidate: Run, tolerance: float, how) -> Iterator[Fault]:
    for key, passed in reference.passed.items():
        point = passed.point
        if key in candidate.passed:
            fault = _point_fault(point, passed, candidate.passed[key], tolerance, how)
            if fault:
                yield fault
        elif candidate.error:
            message, where = candidate.error
            yield Fault(where, "forward", how, f"stops before {point}", np.inf, message)
            return
        elif point.kind == "input" and _has_parameters(point.name, reference, candidate):
            yield Fault(point.module, "forward", how, str(point), np.inf, "never called")


def _point_fault(point: Point, ours: Passed, theirs: Passed, tolerance, how) -> Fault | None:
    counts = len(ours.arrays), len(theirs.arrays)
    if counts[0] != counts[1]:
        detail = f"{counts[1]} arrays where the reference has {counts[0]}"
        return Fault(point.module, "forward", how, str(point), np.inf, detail)
    shapes = [(a.shape, b.shape) for a, b in zip(ours.arrays, theirs.arrays, strict=True)]
    odd = next(((a, b) for a, b in shapes if a != b), None)
    if odd:
        detail = f"shape {odd[1]} where the reference has {odd[0]}"
        return Fault(point.module, "forward", how, str(point), np.inf, detail)
    error = _largest(ours, theirs)
    if error <= tolerance:
        return None
    detail = "not finite" if np.isinf(error) else ""
    return Fault(point.module, "forward", how, str(point), error, detail)


def _largest(reference: Passed, candidate: Passed) -> float:
    pairs = zip(candidate.arrays, reference.arrays, strict=False)
    return max((gap(a, b) for a, b in pairs), default=0.0)


def _backward(reference: Run, candidate: Run, tolerance: float, how) -> Iterator[Fault]:
    """Gradients that differ, each with the module whose code they flow through."""
    callers = reference.callers()
    floors = gradient_floors(gradient_norms(reference))
    for key, passed in reference.passed.items():
        if key not in candidate.passed:
            continue
        triples = zip(candidate.passed[key].grads, passed.grads, names_of(passed), strict=False)
        errors = [gap(a, b, floors[n]) for a, b, n in triples if a is not None and b is not None]
        if errors and max(errors) > tolerance:
            blamed = _reader(passed.point, callers)
            yield Fault(blamed, "backward", how, f"gradient by {passed.point}", max(errors))
    for name, grad in reference.param_grads.items():
        error = gap(candidate.param_grads.get(name, grad), grad, floors[name])
        if error > tolerance:
            module = name.rpartition(".")[0]
            yield Fault(module, "backward", how, f"gradient by {name}", error)


def _reader(point: Point, callers: dict[str, str]) -> str:
    """Whose code reads the value that passed."""
    match point.kind:
        case "input":
            return point.name
        case "output":
            return callers[point.name] if point.name else ""
        case "tap":
            return point.module


def gradient_norms(run: Run) -> dict[str, float]:
    """The norm of every gradient of a run, by what it was taken by."""
    norms = {name: _norm(grad) for name, grad in run.param_grads.items()}
    for passed in run.passed.values():
        for name, grad in zip(names_of(passed), passed.grads, strict=False):
            norms[name] = _norm(grad)
    return norms


def names_of(passed: Passed) -> list[str]:
    """A name for each array that passed."""
    if len(passed.arrays) == 1:
        return [str(passed.point)]
    return [f"{passed.point} [{i}]" for i in range(len(passed.arrays))]


def _norm(grad: np.ndarray | None) -> float:
    return 0.0 if grad is None else float(np.linalg.norm(grad.astype(np.float64)))


def _has_parameters(name: str, reference: Run, candidate: Run) -> bool:
    """Whether a module of this name owns parameters on both sides: then both should call it."""
    prefix = f"{first_call(name)}."
    sides = (reference.param_grads, candidate.param_grads)
    return all(any(n.startswith(prefix) for n in side) for side in sides)
