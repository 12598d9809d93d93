"""Relations between two arrays that need no knowledge of what computed them."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import torch

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains

_LOW = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    return torch.tensor(array).to(_LOW[dtype]).double().numpy()


def not_finite(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    bad = ~np.isfinite(value.candidate)
    if bad.any() and np.isfinite(value.reference).all():
        rows = np.unique(np.argwhere(bad.any(-1) if bad.ndim > 1 else bad), axis=0)
        zero = (value.reference[bad] == 0).all()
        where = "rows that may attend to nothing" if zero else f"{len(rows)} rows"
        yield Cause(
            f"NaN or infinity in {where}, where the reference is finite",
            "mask with the dtype's own lowest number and set masked weights to zero afterwards",
        )


def lower_precision(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """The candidate's value has passed through a narrower type."""
    if value.reference.dtype != np.float64 or deviation(value.candidate, value.reference) > 0.02:
        return
    for dtype in _LOW:
        if np.array_equal(rounded(value.candidate, dtype), value.candidate):
            if not np.array_equal(rounded(value.reference, dtype), value.reference):
                text = f"computed in {dtype}, where the reference is as wide as its input"
                yield Cause(text, f"remove the cast to {dtype}")
            return


def scaled(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    r, c = value.reference.ravel(), value.candidate.ravel()
    if not r.any() or not c.any():
        return
    factor = float(r @ c / (r @ r))
    if explains(factor * value.reference, value.candidate) and abs(factor - 1) > 1e-9:
        shown = describe_constant(factor, evidence.sizes)
        yield Cause(
            f"scaled by {shown} against the reference",
            f"multiply by {describe_constant(1 / factor, evidence.sizes)}",
            deviation(factor * value.reference, value.candidate),
        )


def shifted(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """One number, or one vector over the features, is added."""
    gap = value.candidate - value.reference
    vector = gap.reshape(-1, gap.shape[-1]).mean(0) if gap.ndim > 1 else gap
    if gap.ndim < 2 or not explains(value.reference + vector, value.candidate):
        return
    for name, param in evidence.params.items():
        if explains(-param, vector):
            yield Cause(f"{name} is not added", f"add {name}", deviation(-param, vector))
            return
        if explains(param, vector):
            yield Cause(f"{name} is added twice", f"add {name} once", deviation(param, vector))
            return
    residual = deviation(value.reference + vector, value.candidate)
    yield Cause("an extra vector is added to every row", "remove what is added", residual)


def combined(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Both sides are sums of what the code read, and not the same sums."""
    ours = _as_sum(value.reference, value.read)
    theirs = _as_sum(value.candidate, value.read)
    if ours and theirs and ours != theirs:
        residual = deviation(_total(theirs, value), value.candidate)
        wrong, right = _sum_text(theirs, evidence), _sum_text(ours, evidence)
        if wrong == right:
            return
        yield Cause(f"is {wrong}, where the reference is {right}", f"use {right}", residual)


def _as_sum(wanted: np.ndarray, read: Mapping[str, np.ndarray]) -> dict[str, float] | None:
    """The shortest sum of read values, with solved factors, that is `wanted`."""
    usable = {n: _fitted(a, wanted.shape) for n, a in read.items() if a.dtype.kind == "f"}
    usable = {n: a for n, a in usable.items() if a is not None and a.any()}
    flat = {n: a.ravel() for n, a in usable.items()}
    for count in (1, 2, 3):
        for names in combinations(flat, count):
            matrix = np.stack([flat[n] for n in names], 1)
            factors, *_ = np.linalg.lstsq(matrix, wanted.ravel(), rcond=None)
            if explains((matrix @ factors).reshape(wanted.shape), wanted):
                rounded_factors = {
                    n: float(np.round(f, 9)) for n, f in zip(names, factors, strict=True)
                }
                if all(rounded_factors.values()):
                    return rounded_factors
    return None


def _fitted(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        return np.broadcast_to(array, shape).astype(np.float64)
    except ValueError:
        return None


def _total(factors: dict[str, float], value: Computed) -> np.ndarray:
    shape = value.candidate.shape
    parts = [f * np.broadcast_to(value.read[n], shape) for n, f in factors.items()]
    return np.sum(parts, axis=0)


def _sum_text(factors: dict[str, float], evidence: Evidence) -> str:
    def term(name: str, factor: float) -> str:
        return name if factor == 1 else f"{describe_constant(factor, evidence.sizes)} * {name}"

    return " + ".join(term(n, f) for n, f in factors.items())


def rearranged(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """The same numbers in another order: axes swapped before a reshape, or a shift along one."""
    r, c = value.reference, value.candidate
    if r.size < 2 or not np.array_equal(np.sort(r.ravel()), np.sort(c.ravel())):
        return
    for axis in range(r.ndim):
        for step in range(1, min(r.shape[axis], 64)):
            if np.array_equal(np.roll(r, step, axis), c):
                yield Cause(f"rolled by {step} along axis {axis}", "undo the shift", 0.0)
                return
    for name, array in value.read.items():
        swapped = _swapped(array, c) if array.size == r.size else None
        if swapped:
            text = f"axes {swapped[0]} and {swapped[1]} of {name} are swapped before the reshape"
            yield Cause(text, "transpose back before merging axes", 0.0)
            return
    yield Cause("the same numbers in another order", "check transposes and reshapes", 0.0)


def written_elsewhere(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Rows along axis 1 of something that was read are found in other rows of the result."""
    r, c = value.reference, value.candidate
    for name, array in value.read.items():
        if array.ndim != r.ndim or r.ndim < 3 or array.shape[1] >= r.shape[1]:
            continue
        if (*array.shape[:1], *array.shape[2:]) == (*r.shape[:1], *r.shape[2:]):
            right, wrong = _rows_of(array, r), _rows_of(array, c)
            if right and wrong and right != wrong:
                text = f"{name} is in rows {wrong}, where the reference has it in rows {right}"
                yield Cause(text, f"write it to rows {right}", 0.0)
                return


def _rows_of(array: np.ndarray, whole: np.ndarray) -> list[int]:
    """Where each row along axis 1 of an array is found in another; [] unless all are."""
    found = [
        next((s for s in range(whole.shape[1]) if np.array_equal(row, whole[:, s])), None)
        for row in array.swapaxes(0, 1)
    ]
    return [] if None in found else [int(s) for s in found if s is not None]


def _swapped(array: np.ndarray, wanted: np.ndarray) -> tuple[int, int] | None:
    """Two axes of the array, or of it with two neighbours merged, whose swap gives `wanted`."""
    shapes = [array.shape]
    for i in range(array.ndim - 1):
        merged = array.shape[i] * array.shape[i + 1]
        shapes.append((*array.shape[:i], merged, *array.shape[i + 2 :]))
    for view in (array.reshape(shape) for shape in shapes):
        for a, b in combinations(range(view.ndim), 2):
            if np.array_equal(view.swapaxes(a, b).reshape(wanted.shape), wanted):
                return a, b
    return None


RELATIONS = (not_finite, lower_precision, combined, scaled, shifted, written_elsewhere, rearranged)
