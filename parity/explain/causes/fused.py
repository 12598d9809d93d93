"""Parameters that were one matrix in a checkpoint, and how its rows were handed out."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations, product
from math import gcd

import numpy as np

from parity.explain.causes.evidence import Cause

Named = Mapping[str, np.ndarray]


def split_differently(name: str, all_ours: Named, all_theirs: Named) -> Iterator[Cause]:
    """Rows of q, k and v, or of a gate and its partner, fused in groups and cut in others.

    The number of groups on either side is solved for: a group has a part of each in turn.
    """
    if "." not in name:  # the only module's own: it has no siblings
        return
    module, _, leaf = f".{name}".rsplit(".", 2)
    siblings = [
        n for n in all_ours if f".{n}".rsplit(".", 2)[::2] == [module, leaf] and n in all_theirs
    ]
    for count in (3, 2):
        for names in combinations(siblings, count):
            ours, theirs = ({n: side[n] for n in names} for side in (all_ours, all_theirs))
            if name in names and _same_rows(ours, theirs):
                yield from _groups(ours, theirs)


def _same_rows(ours: Named, theirs: Named) -> bool:
    """Whether the numbers, wherever they are, and all shapes are the same."""
    if any(ours[n].shape != theirs[n].shape for n in ours):
        return False
    if len({array.shape[1:] for array in ours.values()}) > 1:
        return False
    a, b = (np.concatenate([x.ravel() for x in side.values()]) for side in (ours, theirs))
    # Large matrices are sorted only where their ends agree.
    same_ends = (a.min(), a.max()) == (b.min(), b.max())
    return same_ends and np.array_equal(np.sort(a), np.sort(b))


def _groups(ours: Named, theirs: Named) -> Iterator[Cause]:
    """In how many groups they are fused, and in how many cut, that it gives `theirs`."""
    rows = gcd(*map(len, ours.values()))
    counts = [n for n in range(1, rows + 1) if rows % n == 0]
    for names, held, cut in product(permutations(ours), counts, counts):
        parts = _cut(_fused([ours[n] for n in names], held), [len(ours[n]) for n in names], cut)
        pairs = zip(parts, (theirs[n] for n in names), strict=True)
        if held != cut and all(np.array_equal(*pair) for pair in pairs):
            *first, last = (n.rsplit(".", 2)[-2] for n in names)
            groups = f"{held} group{'s' * (held > 1)}"
            text = f"{', '.join(first)} and {last}: fused in {groups} of rows, cut as if in {cut}"
            yield Cause(text, f"cut {groups}, each into all of them", 0.0)
            return


def _fused(arrays: Sequence[np.ndarray], groups: int) -> np.ndarray:
    """The first part of each, then the second part of each, ..."""
    parts = [np.split(array, groups) for array in arrays]
    return np.concatenate([np.concatenate(g) for g in zip(*parts, strict=True)])


def _cut(fused: np.ndarray, rows: Sequence[int], groups: int) -> list[np.ndarray]:
    """The inverse of `_fused`."""
    bounds = np.cumsum(rows)[:-1] // groups
    parts = [np.split(group, bounds) for group in np.split(fused, groups)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]
