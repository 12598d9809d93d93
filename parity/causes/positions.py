"""Position ids, and which table of sines and cosines a module holds."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from parity.causes.evidence import Cause, Computed, Evidence, explains, off


def different_ids(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Integers handed to a child: what they count."""
    r, c = value.reference, value.candidate
    if r.dtype.kind not in "iu" or c.dtype.kind not in "iu":
        return
    r, c = np.broadcast_arrays(r, c)
    step = (c - r).ravel()
    count = np.broadcast_to(np.arange(c.shape[-1]), c.shape)
    if not c.any():
        yield Cause("all ids are 0", "pass the position ids, not another argument", 0.0)
    elif np.array_equal(c, count):
        text = "ids count 0, 1, 2, ... along the row; the reference's skip padding or restart"
        yield Cause(text, "derive the positions from the mask, or pass those that were given", 0.0)
    elif (step == step[0]).all():
        yield Cause(f"ids are off by {step[0]:+d}", f"subtract {step[0]}", 0.0)
    elif np.array_equal(c, np.maximum(r + step.max(), 0)):
        yield Cause(f"ids are off by {step.max():+d}", f"subtract {step.max()}", 0.0)


def different_table(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Sines and cosines of position / theta**(2i / n): theta, the spacing and the order."""
    ids = next(iter(evidence.inputs), None)
    if ids is None or ids.dtype.kind not in "iu" or evidence.params:
        return
    if value.reference.shape[:-1] != ids.shape:
        return
    ours, theirs = (_identify(ids, y) for y in (value.reference, value.candidate))
    if ours and theirs and ours[0] != theirs[0]:
        text = f"{theirs[0]}, where the reference has {ours[0]}"
        yield Cause(text, f"use {ours[0]}", theirs[1])


def _identify(ids: np.ndarray, y: np.ndarray) -> tuple[str, float] | None:
    width = y.shape[-1]
    half = (width + 1) // 2
    layouts = ((True, "sines and cosines in turn"), (False, "sines, then cosines"))
    spacings = ((f"2i / {width}", width / 2), (f"i / ({half} - 1)", half - 1))
    for solved in (False, True):
        for (interleaved, layout), (spacing, count) in product(layouts, spacings):
            second = y[..., 2 if interleaved and width > 2 else min(1, width - 1)]
            theta = _theta(ids, second, count) if solved else 10000.0
            predicted = table(ids, width, theta, count, interleaved)
            if explains(predicted, y):
                text = f"theta {theta:.6g}, exponents {spacing}, {layout}"
                return text, off(predicted, y)
    return None


def _theta(ids: np.ndarray, second: np.ndarray, count: float) -> float:
    """From the second frequency, read off where the position is 1."""
    at = second[ids == 1]
    usable = at.size and 0 < at[0] < 1 and count > 0
    return float(np.arcsin(at[0]) ** -count) if usable else 10000.0


def table(ids: np.ndarray, width: int, theta: float, count: float, interleaved: bool) -> np.ndarray:
    half = (width + 1) // 2
    angles = ids[..., None] / theta ** (np.arange(half) / max(count, 1e-9))
    out = np.empty((*ids.shape, width))
    if interleaved:
        out[..., 0::2], out[..., 1::2] = np.sin(angles), np.cos(angles[..., : width // 2])
    else:
        out[..., :half], out[..., half:] = np.sin(angles), np.cos(angles[..., : width - half])
    return out
