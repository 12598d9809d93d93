"""Parameters that are not the same numbers on both sides after the weights have crossed."""

from collections.abc import Iterator, Mapping

import numpy as np

from parity.explain.causes.evidence import Cause, deviation, explains
from parity.explain.causes.fused import split_differently

Named = Mapping[str, np.ndarray]


def different_parameter(
    name: str, ours: np.ndarray, theirs: np.ndarray, all_ours: Named, all_theirs: Named
) -> Cause:
    """What `theirs` is, beside `ours`, the reference's parameter of that name.

    Args:
        all_ours, all_theirs: the parameters of the reference and of the candidate.
    """
    if ours.shape != theirs.shape:
        text = f"shape {theirs.shape}, where the reference has {ours.shape}"
        return Cause(text, "build the layer with the reference's sizes")
    found = (
        *_constant(theirs),
        *_rearranged(name, ours, theirs, all_ours),
        *split_differently(name, all_ours, all_theirs),
        *_changed_by_one_number(ours, theirs),
    )
    unknown = "other numbers: never copied, or of another checkpoint"
    return next(iter(found), Cause(unknown, "copy it"))


def _constant(theirs: np.ndarray) -> Iterator[Cause]:
    if not theirs.any():
        yield Cause("all zero: never copied, or reset", "copy it")
    elif (theirs == 1).all():
        yield Cause("all one: never copied, or reset", "copy it")


def _rearranged(
    name: str, ours: np.ndarray, theirs: np.ndarray, all_ours: Named
) -> Iterator[Cause]:
    if theirs.ndim == 2:
        if theirs.shape[0] == theirs.shape[1] and np.array_equal(theirs, ours.T):
            yield Cause("transposed", "transpose it when it is copied", 0.0)
        if np.array_equal(theirs, ours.T.reshape(theirs.shape)):
            yield Cause("reshaped where it had to be transposed", "use a transpose", 0.0)
    for other, value in all_ours.items():
        if other != name and np.array_equal(value, theirs):
            yield Cause(f"holds the reference's {other}", "order layers by number", 0.0)
    if np.array_equal(np.sort(theirs.ravel()), np.sort(ours.ravel())):
        yield Cause("the same numbers in another order", "check transposes and reshapes", 0.0)


def _changed_by_one_number(ours: np.ndarray, theirs: np.ndarray) -> Iterator[Cause]:
    """Rounded, or with one number added to all values or multiplied with them."""
    if np.array_equal(theirs.astype(np.float16), ours.astype(np.float16)):
        yield Cause("rounded to a narrower type", "copy it in its own type")
    added = float((theirs - ours).mean())
    if explains(ours + added, theirs):
        text = f"the reference's with {added:.6g} added to every value"
        fix = "add it once: where the weight is converted, or in the layer"
        yield Cause(text, fix, deviation(ours + added, theirs))
    factor = float((theirs * ours).sum() / (ours * ours).sum()) if ours.any() else 0.0
    if explains(factor * ours, theirs):
        text = f"the reference's times {factor:.6g}"
        yield Cause(text, "multiply once", deviation(factor * ours, theirs))
