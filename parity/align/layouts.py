"""The axes along which one array is another, transposed and reshaped."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, permutations
from operator import mul

import numpy as np

Shape = tuple[int, ...]
Axes = tuple[int, ...]

# Beyond this many axes longer than one the permutations are too many, and no model has them.
_MOST_AXES = 6
# The root of the largest float64: above it a norm overflows.
_HUGE = 1e150


@lru_cache(maxsize=4096)
def layouts(shape: Shape, wanted: Shape) -> tuple[Axes, ...]:
    """The orders of axes in which an array of one shape may be one of another, split or merged.

    A transposition is followed by a reshape that only splits axes or merges neighbours. The order
    that moves nothing comes first.
    """
    if int(np.prod(shape)) != int(np.prod(wanted)):
        return ()
    long = [i for i, n in enumerate(shape) if n > 1]
    if len(long) > _MOST_AXES:
        return (tuple(range(len(shape))),) if shape == wanted else ()
    short = tuple(i for i, n in enumerate(shape) if n == 1)
    borders = _borders(wanted)
    return tuple(
        (*short, *order)
        for order in permutations(long)
        if _nested(_borders(tuple(shape[i] for i in order)), borders)
    )


def _borders(shape: Shape) -> frozenset[int]:
    return frozenset(accumulate((n for n in shape if n > 1), mul))


def _nested(ours: frozenset[int], theirs: frozenset[int]) -> bool:
    return ours <= theirs or theirs <= ours


def lay_out(array: np.ndarray, axes: Axes, shape: Shape) -> np.ndarray:
    """The array with its axes in this order, in this shape."""
    return array.transpose(axes).reshape(shape)


def is_number(array: np.ndarray) -> np.ndarray:
    """Where an array holds more than infinities, NaN and the lowest numbers that masks write."""
    return np.abs(array) < _HUGE


def same(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Whether two arrays of one shape agree, norm-wise; infinities and NaN must be at one place."""
    finite = is_number(theirs)
    if not finite.all():
        if not np.array_equal(is_number(ours), finite):
            return False
        if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
            return False
        ours, theirs = np.where(finite, ours, 0), np.where(finite, theirs, 0)
    scale = np.linalg.norm(theirs)
    return bool(np.linalg.norm(ours - theirs) <= tolerance * scale)


def matching_layouts(array: np.ndarray, wanted: np.ndarray, tolerance: float) -> Iterator[Axes]:
    """Every order of axes in which `array` is `wanted`."""
    for axes in layouts(array.shape, wanted.shape):
        if same(lay_out(array, axes, wanted.shape), wanted, tolerance):
            yield axes
