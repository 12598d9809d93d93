"""Norm-wise errors, and the refusal to call an empty check a success."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

FLOAT64_TOLERANCE = 1e-12


class VacuousError(AssertionError):
    """A comparison that could not have failed: one side is constant or zero."""


@dataclass(frozen=True)
class Difference:
    """How far one named value is off: ||a - b|| / max(||b||, floor)."""

    name: str
    error: float
    floored: bool


def difference(
    name: str, ours: np.ndarray, theirs: np.ndarray, floor: float = 0.0, vanishes: bool = False
) -> Difference:
    """The norm-wise relative error of `ours` against `theirs`.

    Args:
        floor: the scale that the value's computation sets, where its own norm may be far below it:
            without one, rounding noise would be divided by rounding noise.
        vanishes: the value is zero in exact arithmetic, and only the floor says what small means.
    Raises:
        VacuousError: `theirs` is constant, zero, or so far below the floor that the tolerance is
            above a tenth of it.
        FloatingPointError: a side holds NaN or infinities.
        ValueError: the shapes differ.
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise ValueError(f"{name}: shapes {ours.shape} and {theirs.shape} differ")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise FloatingPointError(f"{name}: a side is not finite")
    norm = float(np.linalg.norm(theirs))
    if not vanishes:
        _refuse_vacuous(name, theirs, norm, floor)
    scale = max(norm, floor)
    return Difference(name, float(np.linalg.norm(ours - theirs)) / scale, norm < floor)


def _refuse_vacuous(name: str, theirs: np.ndarray, norm: float, floor: float) -> None:
    if norm == 0 or (theirs.size > 1 and np.ptp(theirs) == 0):
        raise VacuousError(f"{name}: all values are {theirs.flat[0]}, nothing is compared")
    if norm < 10 * FLOAT64_TOLERANCE * floor:
        raise VacuousError(f"{name}: norm {norm:.1e} is noise beside its scale of {floor:.1e}")


def differences(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> list[Difference]:
    """The difference of every named value; the names must be the same on both sides."""
    if set(ours) != set(theirs):
        raise ValueError(f"only on one side: {sorted(set(ours) ^ set(theirs))}")
    return [
        difference(
            name, ours[name], theirs[name], floor(name, theirs), name.endswith("k_proj.bias")
        )
        for name in theirs
    ]


def floor(name: str, values: Mapping[str, np.ndarray]) -> float:
    """The scale below which a value is rounding noise; 0 where its own norm is the scale.

    The gradient of a score is w (g - sum(w g)) for softmax weights w and their gradients g: a
    difference that cancels, wholly where one key has all the weight. What rounding leaves of it is
    small beside g, not beside the difference, and g's scale shows in the other gradients of the
    layer. So a gradient of q_proj or k_proj is measured against the largest of its attention layer.
    A key bias adds the same to all scores of a query: its gradient is zero in exact arithmetic.
    """
    layer, _, leaf = name.rpartition(".q_proj." if ".q_proj." in name else ".k_proj.")
    if not (layer and leaf):
        return 0.0
    return max(float(np.linalg.norm(v)) for n, v in values.items() if n.startswith(f"{layer}."))
