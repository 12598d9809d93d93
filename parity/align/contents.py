"""Values found by what they hold, whatever they are called and however they are laid out."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np

from parity.align.layouts import Axes, is_number, matching_layouts
from parity.programs.program import Value


def says_something(array: np.ndarray) -> bool:
    """Whether an array is evidence: floating-point, and neither constant nor of one number."""
    if array.dtype.kind != "f" or array.size < 2:
        return False
    finite = array[is_number(array)]
    return finite.size > 1 and bool(np.ptp(finite) > 0)


class Contents:
    """An index of values by size and norm.

    Args:
        tolerance: the norm-wise difference up to which two values are the same.
    """

    def __init__(self, values: Iterable[Value], tolerance: float):
        self.tolerance = tolerance
        self._sizes: dict[int, list[tuple[float, int, np.ndarray]]] = {}
        for value in values:
            if says_something(value.array):
                held = value.array.astype(np.float64, copy=False)
                self._sizes.setdefault(held.size, []).append((_norm(held), value.number, held))
        for found in self._sizes.values():
            found.sort(key=lambda item: item[:2])

    def find(self, array: np.ndarray) -> Iterator[tuple[int, Axes]]:
        """The values that hold what `array` holds, each with the order of its axes there."""
        if not says_something(array):
            return
        array = array.astype(np.float64, copy=False)
        norm, items = _norm(array), self._sizes.get(array.size, [])
        reach = self.tolerance * norm
        at = bisect_left(items, norm - reach, key=lambda item: item[0])
        while at < len(items) and items[at][0] <= norm + reach:
            _, number, held = items[at]
            axes = next(matching_layouts(held, array, self.tolerance), None)
            if axes is not None:
                yield number, axes
            at += 1

    def holds(self, array: np.ndarray) -> bool:
        return next(self.find(array), None) is not None

    def of_size(self, size: int) -> list[int]:
        """The numbers of the values of this size."""
        return sorted(number for _, number, _ in self._sizes.get(size, []))


def _norm(array: np.ndarray) -> float:
    finite = is_number(array)
    return float(np.linalg.norm(array if finite.all() else np.where(finite, array, 0.0)))
