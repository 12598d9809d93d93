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

from parity.taps import Given, Key, Passed, Point, Run, shown

# Gradients that softmax makes small beside the other gradients of their layer: see `errors.floor`.
_CANCELLING = ("q_proj", "k_proj", "q", "k", "scores")


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


def gap(ours: np.ndarray, theirs: np.ndarray, floor: float = 0.0) -> float:
    """||a - b|| / max(||b||, floor); infinite for other shapes and for what is not finite."""
    if ours.shape != theirs.shape:
        return np.inf
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    distance = float(np.linalg.norm(a - b))
    return distance and distance / max(float(np.linalg.norm(b)), floor, np.finfo(float).tiny)


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
    scales = layer_scales(reference)
    for key, passed in reference.passed.items():
        if key not in candidate.passed:
            continue
        blamed = _reader(passed.point, callers)
        floor = gradient_floor(passed.point.name, scales)
        pairs = zip(candidate.passed[key].grads, passed.grads, strict=False)
        errors = [gap(a, b, floor) for a, b in pairs if a is not None and b is not None]
        if errors and max(errors) > tolerance:
            yield Fault(blamed, "backward", how, f"gradient by {passed.point}", max(errors))
    for name, grad in reference.param_grads.items():
        error = gap(candidate.param_grads.get(name, grad), grad, gradient_floor(name, scales))
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


def layer_scales(run: Run) -> dict[str, float]:
    """The largest gradient norm inside every module that has cancelling ones."""
    norms = [(name, _norm(g)) for name, g in run.param_grads.items()]
    norms += [(p.point.name, _norm(g)) for p in run.passed.values() for g in p.grads]
    layers = {_layer(name) for name, _ in norms} - {None}
    return {
        layer: max(n for name, n in norms if name.startswith(f"{layer}." if layer else ""))
        for layer in layers
        if layer is not None
    }


def _norm(grad: np.ndarray | None) -> float:
    return 0.0 if grad is None else float(np.linalg.norm(grad.astype(np.float64)))


def _layer(name: str) -> str | None:
    """The attention layer of a name, where its gradient is one that cancels."""
    name = name.split("@")[0].split(" [")[0].removeprefix("input of ").removeprefix("output of ")
    parts = name.split(".")
    found = next((i for i, part in enumerate(parts) if part in _CANCELLING), None)
    return None if found is None else ".".join(parts[:found])


def gradient_floor(name: str, scales: dict[str, float]) -> float:
    """The scale that a gradient is measured against, where softmax may make it cancel."""
    layer = _layer(name)
    return 0.0 if layer is None else scales[layer]


def _has_parameters(name: str, reference: Run, candidate: Run) -> bool:
    """Whether a module of this name owns parameters on both sides: then both should call it."""
    prefix = f"{name.split('@')[0]}."
    sides = (reference.param_grads, candidate.param_grads)
    return all(any(n.startswith(prefix) for n in side) for side in sides)


def pairs_at(key: Key, reference: Run, candidate: Run) -> list[tuple[np.ndarray, np.ndarray]]:
    """(reference, candidate) of each array that passed a point."""
    if key not in reference.passed or key not in candidate.passed:
        return []
    ours, theirs = reference.passed[key].arrays, candidate.passed[key].arrays
    return list(zip(ours, theirs, strict=False))
