"""What a linear layer or an embedding does with its own parameters."""

from collections.abc import Iterator

import numpy as np

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains


def different_linear(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    weight, x = evidence.params.get("weight"), next(iter(evidence.inputs), None)
    if weight is None or x is None or weight.ndim != 2 or x.dtype.kind != "f":
        return
    if value.point.name != evidence.module or x.shape[-1] != weight.shape[1]:
        return
    bias = evidence.params.get("bias", np.zeros(weight.shape[0]))
    if not explains(x @ weight.T + bias, value.reference):
        return
    variants = {"the weight is read in another order (reshape for a transpose)": _reshaped(weight)}
    if weight.shape[0] == weight.shape[1]:
        variants = {"the weight is transposed": weight.T} | variants
    for text, matrix in variants.items():
        for used, note in ((bias, ""), (0 * bias, ", and the bias is not added")):
            predicted = x @ matrix.T + used
            if explains(predicted, value.candidate):
                fix = "transpose the weight when it is copied"
                yield Cause(text + note, fix, deviation(predicted, value.candidate))
                return


def _reshaped(weight: np.ndarray) -> np.ndarray:
    return weight.T.reshape(weight.shape)


def different_embedding(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Rows of a table by id: which rows, times what."""
    table, ids = evidence.params.get("weight"), next(iter(evidence.inputs), None)
    if table is None or ids is None or table.ndim != 2 or ids.dtype.kind not in "iu":
        return
    if value.point.name != evidence.module:
        return
    ours, theirs = (_read(table, ids, y) for y in (value.reference, value.candidate))
    if ours is None or theirs is None:
        return
    if ours[0] != theirs[0]:
        right, wrong = (describe_constant(side[0], evidence.sizes) for side in (ours, theirs))
        text = f"rows are multiplied by {wrong}, where the reference has {right}"
        yield Cause(text, f"scale the embedding by {right}", theirs[2])
    if ours[1] != theirs[1]:
        text = f"reads row id {theirs[1]:+d}, where the reference reads row id {ours[1]:+d}"
        yield Cause(text, "use the same offset of the ids", theirs[2])


def _read(table: np.ndarray, ids: np.ndarray, y: np.ndarray) -> tuple[float, int, float] | None:
    """(factor, offset, residual) with y = factor * table[ids + offset]."""
    for offset in (0, 1, 2, -1, -2):
        rows = table[np.clip(ids + offset, 0, len(table) - 1)]
        if rows.shape != y.shape:
            return None
        factor = float((rows * y).sum() / (rows * rows).sum())
        if explains(factor * rows, y):
            return round(factor, 9), offset, deviation(factor * rows, y)
    return None
