"""Weights that were copied already: which array is which by what it holds, and what went wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod

import ml_dtypes
import numpy as np

from parity.align.contents import Contents, says_something
from parity.align.layouts import matching_layouts, same
from parity.programs.program import Value
from parity.weights.layout import Source, Summed, permuted, reshaped
from parity.weights.weight_map import Entry, WeightMap

Arrays = Mapping[str, np.ndarray]

# What a copy through float32 may move.
TOLERANCE = 1e-6
_NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass(frozen=True)
class Finding:
    """An array of JAX's that does not hold what torch's side gives it.

    Args:
        entry: what it should hold.
        text: what it holds instead.
        error: the norm-wise difference.
        true: what it does hold of torch's, where that is known.
    """

    entry: Entry
    text: str
    error: float
    true: Entry | None = None

    def __str__(self) -> str:
        return f"{self.entry.jax} {self.text}"


def match_contents(weight_map: WeightMap, torch_arrays: Arrays, jax_arrays: Arrays) -> WeightMap:
    """The map with everything settled that the numbers show, where both sides are loaded.

    Of alternatives the one is taken whose numbers are there; an array without an entry gets the
    torch array that holds the same numbers in whatever layout.
    """
    torch_arrays, jax_arrays = _wide(torch_arrays), _wide(jax_arrays)
    settled, alternatives = [], weight_map.alternatives
    for entry in weight_map.entries:
        for other in (entry, *alternatives.get(entry.jax, ())):
            if _holds(jax_arrays[entry.jax], other, torch_arrays):
                settled.append(other)
                break
    known = {entry.jax for entry in weight_map.entries}
    index = _Index(torch_arrays)
    for name, array in jax_arrays.items():
        if name not in known and (found := index.entry(name, array)):
            settled.append(found)
    return weight_map.replaced(settled)


def _holds(array: np.ndarray, entry: Entry, torch_arrays: Arrays) -> bool:
    expected = entry.to_jax.apply(torch_arrays)
    return says_something(expected) and same(array, expected, TOLERANCE)


def find_copying_faults(
    weight_map: WeightMap, torch_arrays: Arrays, jax_arrays: Arrays
) -> list[Finding]:
    """Every array of JAX's that does not hold what the map makes of torch's, worst first."""
    torch_arrays, jax_arrays = _wide(torch_arrays), _wide(jax_arrays)
    index = _Index(torch_arrays)
    expected = {entry.jax: entry for entry in weight_map.entries}
    found = []
    for entry in weight_map.entries:
        wanted, held = entry.to_jax.apply(torch_arrays), jax_arrays[entry.jax]
        if not same(held, wanted, TOLERANCE):
            text, true = _explain(entry, held, wanted, torch_arrays, expected, index)
            error = float(np.linalg.norm(held - wanted) / max(np.linalg.norm(wanted), 1e-300))
            found.append(Finding(entry, text, error, true))
    return sorted(found, key=lambda finding: -finding.error)


def _wide(arrays: Arrays) -> dict[str, np.ndarray]:
    """The floating-point ones in float64."""
    narrow = (np.dtype(ml_dtypes.bfloat16), *map(np.dtype, ("f2", "f4", "f8")))
    return {n: a.astype(np.float64) for n, a in arrays.items() if a.dtype in narrow}


def _explain(
    entry: Entry,
    held: np.ndarray,
    wanted: np.ndarray,
    torch_arrays: Arrays,
    expected: Mapping[str, Entry],
    index: "_Index",
) -> tuple[str, Entry | None]:
    """What an array holds, in words, and the entry that gives it."""
    source = " and ".join(entry.torch)
    for name, dtype in _NARROW.items():
        if same(held, wanted.astype(dtype).astype(np.float64), 1e-12):
            return f"is {source} rounded to {name}", entry
    if not says_something(held) and held.size:
        return f"holds only {held.flat[0]:g}: {source} was never copied", None
    if not says_something(wanted):
        return f"holds other numbers, where {source} holds only {wanted.flat[0]:g}", None
    if text := next(_other_layouts(held, wanted), None):
        return f"is {source} {text}", None
    if isinstance(entry.to_jax, Summed):
        for item in entry.to_jax.items:
            if same(held, item.apply(torch_arrays), TOLERANCE):
                rest = [name for name in entry.torch if name not in item.names()]
                return f"is {item} alone: {' and '.join(rest)} is not added", None
    if other := _another(entry, held, torch_arrays, expected, index):
        return f"holds {' and '.join(other.torch)}, not {source}", other
    return _numbers(held, wanted, source), None


def _another(
    entry: Entry,
    held: np.ndarray,
    torch_arrays: Arrays,
    expected: Mapping[str, Entry],
    index: "_Index",
) -> Entry | None:
    """The entry that gives what an array holds: another array's, or a torch array as it lies."""
    for other in expected.values():
        if other.jax != entry.jax and other.torch != entry.torch:
            given = other.to_jax.apply(torch_arrays)
            if given.shape == held.shape and same(held, given, TOLERANCE):
                return Entry(entry.jax, other.to_jax)
    return index.entry(entry.jax, held)


def _other_layouts(held: np.ndarray, wanted: np.ndarray) -> Iterator[str]:
    """Transposed, flipped, or its slices in another order."""
    for axes in matching_layouts(wanted, held, TOLERANCE):
        if axes != tuple(range(wanted.ndim)):
            yield "transposed" if axes == (1, 0) else f"with its axes permuted {axes}"
    long = [axis for axis in range(wanted.ndim) if wanted.shape[axis] > 1]
    for count in range(1, min(len(long), 3) + 1):
        for axes in combinations(long, count):
            if same(held, np.flip(wanted, axes), TOLERANCE):
                yield f"flipped along {'axes' if count > 1 else 'axis'} {_listed(axes)}"
    for axis in long:
        order = _slice_order(held, wanted, axis)
        if order is not None:
            yield f"with axis {axis} {_order_in_words(order)}"


def _slice_order(held: np.ndarray, wanted: np.ndarray, axis: int) -> np.ndarray | None:
    """The order in which `held` has the slices of `wanted` along an axis."""
    ours = np.moveaxis(held, axis, 0).reshape(held.shape[axis], -1)
    theirs = np.moveaxis(wanted, axis, 0).reshape(held.shape[axis], -1)
    # A slice is known by one projection, which rounding alone does not bring together.
    probe = np.random.default_rng(0).normal(size=ours.shape[1])
    our_marks, their_marks = ours @ probe, theirs @ probe
    order = np.empty(len(ours), int)
    order[np.argsort(our_marks)] = np.argsort(their_marks)
    return order if same(ours, theirs[order], TOLERANCE) else None


def _order_in_words(order: np.ndarray) -> str:
    """A permutation as a transposition of factors, or a roll, where it is one."""
    n = len(order)
    for heads in (d for d in range(1, n) if n % d == 0):
        inner = n // heads
        for a in (d for d in range(2, inner) if inner % d == 0):
            b = inner // a
            shape = np.arange(n).reshape(heads, a, b)
            if np.array_equal(order, shape.transpose(0, 2, 1).ravel()):
                each = f" in each of {heads} groups" if heads > 1 else ""
                return f"as [{b}, {a}] where it is [{a}, {b}]{each}"
            if heads > 1 and np.array_equal(order, shape.transpose(1, 0, 2).ravel()):
                return f"as [{a}, {heads}, {b}] where it is [{heads}, {a}, {b}]"
    if np.array_equal(order, np.roll(np.arange(n), -order[0])):
        return f"rolled by {order[0]}"
    moved = np.flatnonzero(order != np.arange(n))
    return f"in another order ({len(moved)} of {n} moved)"


def _numbers(held: np.ndarray, wanted: np.ndarray, source: str) -> str:
    """How the numbers of one shape differ."""
    factor = float((held * wanted).sum() / (wanted * wanted).sum())
    if factor and same(held, factor * wanted, TOLERANCE):
        return f"is {source} times {factor:g}"
    shift = float((held - wanted).mean())
    if same(held - shift, wanted, TOLERANCE):
        return f"is {source} {'plus' if shift > 0 else 'minus'} {abs(shift):g}"
    for axis in range(wanted.ndim):
        others = tuple(i for i in range(wanted.ndim) if i != axis)
        gap = np.sqrt(((held - wanted) ** 2).sum(others))
        wrong = np.flatnonzero(gap > TOLERANCE * np.sqrt((wanted**2).sum(others)))
        if len(wrong) < 0.9 * wanted.shape[axis]:
            first, last = wrong[0], wrong[-1]
            span = f"{first}:{last + 1}" if last - first + 1 == len(wrong) else _listed(wrong[:5])
            return f"differs from {source} at {span} of axis {axis}, the rest is equal"
    return f"holds other numbers than {source}"


def _listed(numbers: np.ndarray | tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)


class _Index:
    """Torch's arrays by what they hold."""

    def __init__(self, torch_arrays: Arrays):
        self.names = list(torch_arrays)
        self.shapes = {name: array.shape for name, array in torch_arrays.items()}
        values = [
            Value(i, array, "float64", "parameter", name)
            for i, (name, array) in enumerate(torch_arrays.items())
        ]
        self.contents = Contents(values, TOLERANCE)

    def entry(self, jax_name: str, array: np.ndarray) -> Entry | None:
        """The torch array that holds the same, as an entry for the JAX array of this name."""
        for number, axes in self.contents.find(array):
            name = self.names[number]
            shape = tuple(self.shapes[name][axis] for axis in axes)
            layout = reshaped(permuted(Source(name), axes), shape, array.shape)
            if prod(shape) > 1:
                return Entry(jax_name, layout, "by its numbers")
        return None
