"""Position ids, and which table of sines and cosines a module holds."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import numpy as np

from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains


def different_ids(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Integers handed to a child, [B, T] or one such in each channel: what they count."""
    r, c = value.reference, value.candidate
    if r.dtype.kind not in "iu" or c.dtype.kind not in "iu" or not _broadcast(r, c):
        return
    r, c = np.broadcast_arrays(r, c)
    channels = _channels(r, c)
    for number, (right, wrong) in enumerate(channels):
        where = f"channel {number}: " if len(channels) > 1 else ""
        for text, fix in _different_count(right, wrong, value.read):
            yield Cause(where + text, fix, 0.0)


def _broadcast(r: np.ndarray, c: np.ndarray) -> bool:
    sizes = zip(r.shape[::-1], c.shape[::-1], strict=False)
    return all(m == n or 1 in (m, n) for m, n in sizes)


def _channels(r: np.ndarray, c: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """[B, T, C] and [B, C, T] as pairs of [B, T]: there are fewer channels than tokens."""
    if r.ndim != 3:
        return [(r, c)]
    axis = 2 if r.shape[2] <= r.shape[1] else 1
    return [(r.take(i, axis), c.take(i, axis)) for i in range(r.shape[axis])]


def _different_count(
    r: np.ndarray, c: np.ndarray, read: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, str]]:
    step = (c - r).ravel()
    if not step.any():
        return
    most = step[np.abs(step).argmax()]
    count = np.broadcast_to(np.arange(c.shape[-1]), c.shape)
    if not c.any():
        yield "all ids are 0", "pass the position ids, not another argument"
    elif c.ndim == 2 and _stays(r) and np.array_equal(r, np.minimum(c, r.max(1, keepdims=True))):
        ends = r.max(1)
        text = f"ids run on along the row, where the reference's stay at {_listed(ends)}"
        yield text + _owner(ends, read), "let them stay there"
    elif np.array_equal(c, count):
        yield (
            "ids count 0, 1, 2, ... along the row; the reference's skip padding or restart",
            "derive the positions from the mask, or pass those that were given",
        )
    elif np.array_equal(c, r + most) or np.array_equal(c, np.maximum(r + most, 0)):
        yield f"ids are off by {most:+d}", f"subtract {most}"
    elif c.ndim == 2:
        yield from _whole_rows(r, c)


def _stays(ids: np.ndarray) -> bool:
    """Whether some row repeats its last id, which a row of one token cannot show."""
    return ids.shape[1] > 1 and bool((ids[:, -1] == ids[:, -2]).any())


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(n) for n in numbers)


def _owner(ends: np.ndarray, read: Mapping[str, np.ndarray]) -> str:
    """Whose last tokens these are."""
    for name, array in read.items():
        if array.dtype == bool and array.ndim == 2 and np.array_equal(array.sum(1) - 1, ends):
            return f", the last of {name}"
    return ""


def _whole_rows(r: np.ndarray, c: np.ndarray) -> Iterator[tuple[str, str]]:
    """Rows of one number each, which in the reference is where some row ends."""
    ends = r.max(1)
    flat = np.flatnonzero((c == c[:, :1]).all(1) & (c != r).any(1))
    origins = [np.flatnonzero(ends == c[row, 0]) for row in flat]
    rest = np.setdiff1d(np.arange(len(c)), flat)
    ordinary = np.minimum(c[rest], ends[rest, None]) if len(rest) else r[rest]
    if not len(flat) or any(not len(o) for o in origins) or not np.array_equal(ordinary, r[rest]):
        return
    sources = _listed(int(o[0]) for o in origins)
    text = f"rows {_listed(flat)} hold {_listed(c[flat, 0])} throughout, which is where the ids of "
    text += f"rows {sources} end in the reference"
    late = [int(row) for row in rest if not np.array_equal(c[row], r[row])]
    text += f"; rows {_listed(late)} run on past their own end" if late else ""
    yield (
        text,
        "assign the end of a row with the row's index: ids[i, n:] = last, not ids[n:] = last",
    )


def different_sinusoids(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Sines and cosines of position / theta**(2i / n): theta, the spacing and the order."""
    ids = next(iter(evidence.inputs), None)
    if ids is None or ids.dtype.kind not in "iu" or evidence.params:
        return
    if value.reference.shape[:-1] != ids.shape:
        return
    ours, theirs = (_identify_sinusoids(ids, y) for y in (value.reference, value.candidate))
    if ours and theirs and ours[0] != theirs[0]:
        text = f"{theirs[0]}, where the reference has {ours[0]}"
        yield Cause(text, f"use {ours[0]}", theirs[1])


def _identify_sinusoids(ids: np.ndarray, y: np.ndarray) -> tuple[str, float] | None:
    width = y.shape[-1]
    half = (width + 1) // 2
    layouts = ((True, "sines and cosines interleaved"), (False, "sines, then cosines"))
    spacings = ((f"2i / {width}", width / 2), (f"i / ({half} - 1)", half - 1))
    for solved in (False, True):
        for (interleaved, layout), (spacing, count) in product(layouts, spacings):
            second = y[..., 2 if interleaved and width > 2 else min(1, width - 1)]
            theta = _theta(ids, second, count) if solved else 10000.0
            predicted = sinusoids(ids, width, theta, count, interleaved)
            if explains(predicted, y):
                text = f"theta {theta:.6g}, exponents {spacing}, {layout}"
                return text, deviation(predicted, y)
    return None


def _theta(ids: np.ndarray, second: np.ndarray, count: float) -> float:
    """From the second frequency, read off where the position is 1."""
    at = second[ids == 1]
    usable = at.size and 0 < at[0] < 1 and count > 0
    return float(np.arcsin(at[0]) ** -count) if usable else 10000.0


def sinusoids(
    ids: np.ndarray, width: int, theta: float, count: float, interleaved: bool
) -> np.ndarray:
    half = (width + 1) // 2
    angles = ids[..., None] / theta ** (np.arange(half) / max(count, 1e-9))
    out = np.empty((*ids.shape, width))
    if interleaved:
        out[..., 0::2], out[..., 1::2] = np.sin(angles), np.cos(angles[..., : width // 2])
    else:
        out[..., :half], out[..., half:] = np.sin(angles), np.cos(angles[..., : width - half])
    return out
