"""Outputs and gradients of two programs: equal or not, and by how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parity.align.layouts import Axes, lay_out, layouts
from parity.align.rounding import SAFETY
from parity.programs.program import Program

Kind = Literal["output", "parameter gradient", "input gradient"]


@dataclass(frozen=True)
class OutputPair:
    """An output of the base and the target's that it is compared with.

    Args:
        axes: the order in which the target's axes are the base's.
    """

    name: str
    base: int
    target: int
    axes: Axes


@dataclass(frozen=True)
class Compared:
    """One result of both sides.

    Args:
        error: the norm of the difference beside the norm of the reference.
        allowed: the error that rounding explains.
    """

    name: str
    kind: Kind
    error: float
    allowed: float

    @property
    def equal(self) -> bool:
        return self.error <= self.allowed


def pair_outputs(base: Program, target: Program) -> list[OutputPair]:
    """Outputs with one another: by name, where names differ by size and nearness of values.

    Outputs that only one side returns are left out.
    """
    ours = {n: i for n, i in base.outputs.items() if base.values[i].is_float}
    theirs = {n: i for n, i in target.outputs.items() if target.values[i].is_float}
    found, free = [], dict(theirs)
    for name, number in ours.items():
        array = base.values[number].array
        near = [
            (other != name and len(ours) + len(theirs) > 2, *nearest, other)
            for other, i in free.items()
            if (nearest := nearest_layout(target.values[i].array, array)) is not None
        ]
        if near:
            *_, axes, other = min(near, key=lambda item: (item[1] > 1e-3, item[0], item[1]))
            found.append(OutputPair(name, number, free.pop(other), axes))
    return found


def nearest_layout(array: np.ndarray, wanted: np.ndarray) -> tuple[float, Axes] | None:
    """The order of axes in which `array` is nearest to `wanted`, and its distance there.

    Arrays of one shape are compared as they are.
    """
    if array.shape == wanted.shape:
        return distance(array, wanted), tuple(range(array.ndim))
    found = [
        (distance(lay_out(array, axes, wanted.shape), wanted), axes)
        for axes in layouts(array.shape, wanted.shape)
    ]
    return min(found, default=None)


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """||a - b|| / ||b||; infinite where infinities or NaN are not at the same places."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(np.isfinite(ours), finite):
        return np.inf
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return np.inf
    gap = float(np.linalg.norm(ours[finite] - theirs[finite]))
    return gap and gap / max(float(np.linalg.norm(theirs[finite])), np.finfo(float).tiny)


def probe_outputs(
    base: Program, pairs: Sequence[OutputPair], target: Program
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Weights of the outputs in the sum that is differentiated, as each side lays them out."""
    rng = np.random.default_rng(17)
    ours, theirs = {}, {}
    for pair in pairs:
        array = base.values[pair.base].array
        weights = np.where(np.isfinite(array), rng.normal(size=array.shape), 0.0)
        ours[pair.base] = weights
        shape = target.values[pair.target].array.shape
        permuted = tuple(shape[i] for i in pair.axes)
        theirs[pair.target] = weights.reshape(permuted).transpose(np.argsort(pair.axes))
    return ours, theirs


def compare_arrays(
    name: str,
    kind: Kind,
    candidate: np.ndarray,
    reference: np.ndarray,
    moved: float,
    tolerance: float,
) -> Compared:
    """One result judged.

    Args:
        moved: the norm by which rounding moves the reference.
        tolerance: the norm-wise error that is allowed beside it.
    """
    near = nearest_layout(candidate, reference)
    norm = float(np.linalg.norm(reference[np.isfinite(reference)]))
    scale = norm or float(np.linalg.norm(candidate[np.isfinite(candidate)]))
    allowed = tolerance + SAFETY * moved / max(scale, np.finfo(float).tiny)
    if near is None:
        return Compared(name, kind, np.inf, allowed)
    error = near[0]
    if not norm:
        gap = float(np.linalg.norm(candidate))
        error = gap and gap / max(scale, np.finfo(float).tiny)
    return Compared(name, kind, error, allowed)
