"""The same numbers in another order: permuted factors of axes, shifts, reversals."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product

import numpy as np
import torch
from torch import Tensor

from parity.align.layouts import same
from parity.explain.edits.edit import Proposal, with_input, with_output
from parity.explain.edits.search import Search
from parity.explain.edits.words import spoken, stem
from parity.programs.program import Operation

_MOST_TRIED = 20_000
_MOST_AXES = 6
_REACH = 3


def rearrangements(search: Search) -> Iterator[Proposal]:
    yield from _guided(search)
    yield from _tiled(search)
    yield from _pairs(search)
    yield from _flipped(search)
    yield from _moved(search)


@dataclass(frozen=True)
class Place:
    """What operations read or give, with a way to change it there."""

    number: int
    array: np.ndarray
    text: str
    change: Callable[[Callable[[Tensor], Tensor]], list[Operation]]


def _places(search: Search) -> Iterator[Place]:
    """What operations of the window read and give, with a way to change it there."""
    for operations in search.groups():
        first = operations[0]
        for index, n in enumerate(first.inputs):
            if search.array(n).dtype.kind == "f" and search.array(n).size > 1:
                what = search.program.values[n].name or f"what {spoken(first)} reads"
                yield Place(
                    n,
                    search.array(n),
                    what,
                    lambda change, index=index, operations=operations: [
                        with_input(search.program, op, index, change)
                        for op in operations
                        if index < len(op.inputs)
                    ],
                )
        held = search.array(first.outputs[0])
        if held.dtype.kind == "f" and held.size > 1:
            yield Place(
                first.outputs[0],
                held,
                f"what {spoken(first)} gives",
                lambda change, operations=operations: [
                    with_output(search.program, op, change) for op in operations
                ],
            )


def _guided(search: Search) -> Iterator[Proposal]:
    """What the target's window holds in another order."""
    contents = {
        n: (held, np.sort(held.ravel()))
        for n in search.target_values
        if (held := search.target.values[n].array).dtype.kind == "f" and held.size > 1
    }
    for place in _places(search):
        array, ordered = place.array, np.sort(place.array.ravel())
        for n, (held, theirs) in contents.items():
            if held.size != array.size or not same(ordered, theirs, search.tolerance):
                continue
            laid_out = [search.pair.array] if place.number == search.pair.base else []
            laid_out += list(search.in_layout_of(n, array.shape))
            if place.number != search.pair.base and any(
                same(array, wanted, search.tolerance) for wanted in laid_out[1:]
            ):
                laid_out = laid_out[:1]
            for wanted in laid_out:
                if same(array, wanted, search.tolerance):
                    continue
                found = find_permutation(array, wanted, search.tolerance)
                if found is not None:
                    base, target = _permutation_texts(search, place, *found)
                    edited = place.change(lambda a, found=found: permuted(a, *found))
                    yield Proposal(edited, base, target)


def find_permutation(
    array: np.ndarray, wanted: np.ndarray, tolerance: float
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(shape with axes split in factors, order of these) whose transpose is `wanted`."""
    tried = 0
    for factors in _factored(array.shape):
        for order in permutations(range(len(factors))):
            if order == tuple(range(len(factors))):
                continue
            tried += 1
            if tried > _MOST_TRIED:
                return None
            if same(
                array.reshape(factors).transpose(order).reshape(wanted.shape), wanted, tolerance
            ):
                return factors, order
    return None


def permuted(array: Tensor, factors: Sequence[int], order: Sequence[int]) -> Tensor:
    return array.reshape(*factors).permute(*order).reshape(array.shape)


def _factored(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The shape with its axes split, those split the least first."""
    choices = [list(_splits(n)) for n in shape if n > 1]
    every = (
        tuple(n for part in parts for n in part) for parts in islice(product(*choices), _MOST_TRIED)
    )
    yield from sorted((f for f in every if len(f) <= _MOST_AXES), key=len)


def _two_factors(n: int) -> Iterator[tuple[int, int]]:
    for a in range(2, n // 2 + 1):
        if n % a == 0:
            yield a, n // a


def _splits(n: int) -> Iterator[tuple[int, ...]]:
    yield (n,)
    yield from _two_factors(n)
    for a in range(2, n // 4 + 1):
        for b in range(2, n // (2 * a) + 1):
            if n % (a * b) == 0:
                yield a, b, n // (a * b)


def _permutation_texts(
    search: Search, place: Place, factors: tuple[int, ...], order: tuple[int, ...]
) -> tuple[str, str]:
    moved = [i for i, axis in enumerate(order) if i != axis]
    if len(moved) == 2 and moved[1] - moved[0] == 1:
        split = place.array.reshape(factors)
        heads, times = (factors[i] for i in moved)
        for one, other in (moved, moved[::-1]):
            if (split == split.take([0], one)).all():
                heads, times = factors[other], factors[one]
                repeated = f"each of {heads} heads repeated {times} times in a row (repeat)"
                tiled = f"all {heads} heads in order, {times} times over (tile)"
                return (repeated, tiled) if one > other else (tiled, repeated)
    transposed = _untransposed(search, place, factors, order)
    if transposed is not None:
        lengths = " x ".join(map(str, search.array(transposed.outputs[0]).shape))
        base = f"axes transposed to {lengths} before they are merged"
        return base, "axes merged without the transpose before"
    shown = ", ".join(map(str, factors))
    theirs = ", ".join(str(factors[axis]) for axis in order)
    return (
        f"{place.text} in the order [{shown}]",
        f"{place.text} in the order [{theirs}]: factors {list(order)} of [{shown}]",
    )


def _untransposed(
    search: Search, place: Place, factors: tuple[int, ...], order: tuple[int, ...]
) -> Operation | None:
    """The transpose that is missing in the target, where undoing it gives the order."""
    wanted = permuted(torch.tensor(place.array), factors, order).numpy()
    number = place.number
    for _ in range(5):
        operation = search.program.producer(number)
        if operation is None or len(operation.inputs) != 1:
            return None
        number = operation.inputs[0]
        if stem(operation) in ("transpose", "permute"):
            before = search.array(number)
            return operation if same(before.reshape(wanted.shape), wanted, 0.0) else None
        if search.array(number).size != wanted.size:
            return None
    return None


def _tiled(search: Search) -> Iterator[Proposal]:
    """Copies along an axis, each beside its own or all one after another."""
    for place in _places(search):
        for axis, length in enumerate(place.array.shape):
            for a, b in _two_factors(length):
                factors = (*place.array.shape[:axis], a, b, *place.array.shape[axis + 1 :])
                split = place.array.reshape(factors)
                copies = [(split == split.take([0], axis + i)).all() for i in (0, 1)]
                if sum(copies) == 1:
                    order = list(range(len(factors)))
                    order[axis : axis + 2] = axis + 1, axis
                    texts = _permutation_texts(search, place, factors, tuple(order))
                    edited = place.change(lambda x, f=factors, o=order: permuted(x, f, o))
                    yield Proposal(edited, *texts)


def _pairs(search: Search) -> Iterator[Proposal]:
    """A computation on pairs of an axis: one of each half, or neighbours."""
    for blocks in search.alike():
        n = search.array(blocks[0].start).shape[-1]
        for a in range(2, n // 2 + 1):
            if n % a:
                continue

            def split(x: Tensor, a: int = a, n: int = n) -> Tensor:
                return x.reshape(*x.shape[:-1], a, n // a).swapaxes(-1, -2).reshape(x.shape)

            def joined(x: Tensor, a: int = a, n: int = n) -> Tensor:
                return x.reshape(*x.shape[:-1], n // a, a).swapaxes(-1, -2).reshape(x.shape)

            operations: dict[int, Operation] = {}
            for block in blocks:
                for number, index in block.readers:
                    held = operations.get(number, search.state.operations[number])
                    operations[number] = with_input(search.program, held, index, split)
                end = operations.get(block.end.number, block.end)
                operations[end.number] = with_output(search.program, end, joined)
            halves, neighbours = "pairs are one of each half (0, {})", "pairs are neighbours (0, 1)"
            if a == n // 2:
                texts = (halves.format(n // 2), neighbours)
            elif a == 2:
                texts = (neighbours, halves.format(n // 2))
            else:
                texts = (f"parts of {n // a}", f"every {a}th of the axis")
            if n == 4:
                texts = _pairing(search, blocks[0].start, texts)
            yield Proposal(list(operations.values()), *texts)


def _pairing(search: Search, start: int, texts: tuple[str, str]) -> tuple[str, str]:
    """Of four, two halves and two neighbours are split alike: the base's own slices tell."""
    for operation in search.window:
        if start in operation.inputs and operation.attributes.get("step") == 2:
            return texts[1], texts[0]
    return texts


def _flipped(search: Search) -> Iterator[Proposal]:
    """Reversed along axes; square matrices transposed."""
    for place in _places(search):
        array, what, change = place.array, place.text, place.change
        for axes in _reversed_axes(array):
            text = f"{what} reversed along {'axes' if len(axes) > 1 else 'axis'} "
            text += ", ".join(map(str, axes))
            yield Proposal(
                change(lambda a, axes=axes: torch.flip(a, axes)), f"{what} as it is", text
            )
        if array.ndim >= 2 and array.shape[-1] == array.shape[-2]:
            yield Proposal(
                change(lambda a: a.swapaxes(-1, -2)), f"{what} as it is", f"{what} transposed"
            )
        if array.ndim >= 3 and array.shape[0] == array.shape[1]:
            yield Proposal(
                change(lambda a: a.swapaxes(0, 1)),
                f"{what} as it is",
                f"{what} with its first two axes swapped",
            )


def _reversed_axes(array: np.ndarray) -> Iterator[tuple[int, ...]]:
    yield from ((axis,) for axis in range(array.ndim) if array.shape[axis] > 1)
    if array.ndim > 3:
        yield tuple(range(2, array.ndim))


def _moved(search: Search) -> Iterator[Proposal]:
    """Rolled or shifted along an axis."""
    for place in _places(search):
        array, what, change = place.array, place.text, place.change
        for axis, step in product(range(array.ndim), range(-_REACH, _REACH + 1)):
            if not step or abs(step) >= array.shape[axis]:
                continue
            way = "later" if step > 0 else "earlier"
            where = f"by {abs(step)} {way} along axis {axis} of {array.ndim}"
            yield Proposal(
                change(lambda a, axis=axis, step=step: torch.roll(a, step, axis)),
                f"{what} as it is",
                f"{what} rolled {where}",
            )
            yield Proposal(
                change(lambda a, axis=axis, step=step: shifted(a, axis, step)),
                f"{what} as it is",
                f"{what} shifted {where}, zeros in the place",
            )


def shifted(array: Tensor, axis: int, step: int) -> Tensor:
    kept = array.narrow(axis, max(0, -step), array.shape[axis] - abs(step))
    gap = torch.zeros_like(array.narrow(axis, 0, abs(step)))
    return torch.cat([gap, kept] if step > 0 else [kept, gap], axis)
