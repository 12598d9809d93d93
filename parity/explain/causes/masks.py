"""Which parts a boolean mask is the conjunction of: causality, windows, padding, what was given."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from parity.explain.causes.evidence import Cause, Computed, Evidence


def different_mask(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    r, c = value.reference, value.candidate
    if r.dtype != bool or c.dtype != bool or r.ndim < 2:
        return
    ours, theirs = (identify_parts(mask, value.read) for mask in (r, c))
    if ours is not None and theirs is not None and ours != theirs:
        wrong, right = (" and ".join(parts) or "no mask" for parts in (theirs, ours))
        yield Cause(f"{wrong}, where the reference has {right}", f"mask by {right}", 0.0)


def identify_parts(mask: np.ndarray, read: Mapping[str, np.ndarray]) -> tuple[str, ...] | None:
    """The fewest parts whose conjunction is the mask; () where everything may attend."""
    parts = {name: part for name, part in _parts(mask, read) if not (mask & ~part).any()}
    for count in range(5):
        for names in combinations(parts, count):
            whole = np.ones(mask.shape, bool)
            for name in names:
                whole = whole & parts[name]
            if whole.shape == mask.shape and np.array_equal(whole, mask):
                return names
    return None


def _parts(mask: np.ndarray, read: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    length, keys = mask.shape[-2:]
    t, s = np.arange(length)[:, None], np.arange(keys)
    orders = {
        "causality": ("no key after the query", s <= t),
        "reversed causality": ("no key before the query", s >= t),
        "strict causality": ("no key from the query on", s < t),
    }
    if length != keys:
        # Queries and keys are not the same tokens: where the first query stands is read off.
        starts = sorted({0, *np.flatnonzero(mask[..., 0, :].reshape(-1, keys).any(0))[-1:]})
        orders = {f"causality, first query at key {n}": ("", s <= t + n) for n in starts}
    for name, (meaning, part) in orders.items():
        yield f"{name} ({meaning})" if meaning else name, part
    for size in range(1, length if length == keys else 1):
        triangle = np.minimum(s, size - 1) <= np.minimum(t, size - 1)
        yield f"the triangle of a buffer of {size} positions, indices clamped", triangle
    for name, array in read.items():
        if array.dtype == bool and array.ndim == 2 and array.shape[-1] == keys:
            # One row of keys for each text, however many axes of heads there are.
            rows = array.reshape(len(array), *(1,) * (max(mask.ndim, 4) - 2), keys)
            if not _fits(rows.shape, mask.shape) and mask.ndim > 3:
                continue
            yield f"padding of {name}", rows
            for order, (_, part) in orders.items():
                text = f"{order} but for the keys in {name}, which all queries see"
                yield text, part | rows
        elif array.dtype == bool and _fits(array.shape, mask.shape):
            yield f"the mask {name}", array
    allowed = mask.any(axis=tuple(range(mask.ndim - 1)))
    last = int(np.flatnonzero(allowed)[-1]) + 1 if allowed.any() else keys
    if last < keys:
        yield f"only the first {last} keys", s < last
    seen = mask.any(axis=tuple(range(mask.ndim - 2)))
    for reach, side in ((t - s, ""), (s - t, " from the query on")):
        far = np.where(seen, reach, -keys).max()
        if far < length - 1:
            yield f"a window of {far + 1} keys{side}", reach <= far


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(shape, wanted)
    except ValueError:
        return False
    return True
