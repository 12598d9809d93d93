"""Which parts a boolean mask is the conjunction of: causality, windows, padding, what was given."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from parity.causes.evidence import Cause, Computed, Evidence


def different_mask(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    r, c = value.reference, value.candidate
    if r.dtype != bool or c.dtype != bool or r.ndim < 2:
        return
    ours, theirs = (_identify(mask, value.read) for mask in (r, c))
    if ours is not None and theirs is not None and ours != theirs:
        wrong, right = (" and ".join(parts) or "no mask" for parts in (theirs, ours))
        yield Cause(f"{wrong}, where the reference has {right}", f"mask by {right}", 0.0)


def _identify(mask: np.ndarray, read: Mapping[str, np.ndarray]) -> tuple[str, ...] | None:
    """The fewest parts whose conjunction is the mask; () where everything may attend."""
    parts = _parts(mask, read)
    for count in range(5):
        for names in combinations(parts, count):
            whole = np.ones(mask.shape, bool)
            for name in names:
                whole = whole & parts[name]
            if whole.shape == mask.shape and np.array_equal(whole, mask):
                return names
    return None


def _parts(mask: np.ndarray, read: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    length, keys = mask.shape[-2:]
    t, s = np.arange(length)[:, None], np.arange(keys)
    parts = {
        "causality (no key after the query)": s <= t,
        "reversed causality (no key before the query)": s >= t,
        "strict causality (no key from the query on)": s < t,
    }
    for size in range(1, length if length == keys else 1):
        triangle = np.minimum(s, size - 1) <= np.minimum(t, size - 1)
        parts[f"the triangle of a buffer of {size} positions, indices clamped"] = triangle
    for name, array in read.items():
        if array.dtype == bool:
            parts |= _given(name, array, mask.shape)
    allowed = mask.any(axis=tuple(range(mask.ndim - 1)))
    last = int(np.flatnonzero(allowed)[-1]) + 1 if allowed.any() else keys
    if last < keys:
        parts[f"only the first {last} keys"] = s < last
    reach = t - s
    seen = np.where(mask.any(axis=tuple(range(mask.ndim - 2))), reach, -keys).max()
    if seen < length - 1:
        parts[f"a window of {seen + 1} keys"] = reach <= seen
    return parts


def _given(name: str, array: np.ndarray, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    keys = shape[-1]
    if array.ndim == 2 and array.shape[-1] == keys:
        return {f"padding of {name}": array[:, None, None, :]}
    try:
        np.broadcast_shapes(array.shape, shape)
    except ValueError:
        return {}
    return {f"the mask {name}": array}
