"""Parameters that are not the same numbers on both sides after the weights have crossed."""

from collections.abc import Mapping

import numpy as np

from parity.causes.evidence import Cause


def different_parameter(
    name: str, ours: np.ndarray, theirs: np.ndarray, all_ours: Mapping[str, np.ndarray]
) -> Cause:
    """What `theirs` is, beside `ours`, the reference's parameter of that name."""
    if ours.shape != theirs.shape:
        text = f"shape {theirs.shape}, where the reference has {ours.shape}"
        return Cause(text, "build the layer with the reference's sizes")
    if not theirs.any():
        return Cause("all zero: never copied, or reset", "copy it")
    if (theirs == 1).all():
        return Cause("all one: never copied, or reset", "copy it")
    if theirs.ndim == 2:
        if theirs.shape[0] == theirs.shape[1] and np.array_equal(theirs, ours.T):
            return Cause("transposed", "transpose it when it is copied", 0.0)
        if np.array_equal(theirs, ours.T.reshape(theirs.shape)):
            return Cause("reshaped where it had to be transposed", "use a transpose", 0.0)
    for other, value in all_ours.items():
        if other != name and np.array_equal(value, theirs):
            return Cause(f"holds the reference's {other}", "order layers by number", 0.0)
    if np.array_equal(np.sort(theirs.ravel()), np.sort(ours.ravel())):
        return Cause("the same numbers in another order", "check transposes and reshapes", 0.0)
    if np.array_equal(theirs.astype(np.float16), ours.astype(np.float16)):
        return Cause("rounded to a narrower type", "copy it in its own type")
    return Cause("other numbers: never copied, or of another checkpoint", "copy it")
