"""Whole numbers that choose rows: positions, buckets of distances, slots, copies of heads."""

from collections.abc import Iterator

import numpy as np

from parity.explain.causes.distances import bucket_differences
from parity.explain.edits.edit import Proposal, constant, with_input, with_output
from parity.explain.edits.search import Search
from parity.explain.edits.words import stem
from parity.programs.program import Operation, Program

# Fewer numbers can be told from too many formulas.
_FEWEST = 3
_MOST_SHOWN = 12
# So many operations back from what is read wrongly the read of a table is looked for.
_FARTHEST = 12
_READERS = {"embedding": "embedding", "index": "table", "gather": "table", "index_select": "table"}


def other_indices(search: Search) -> Iterator[Proposal]:
    """The target's whole numbers in the place of the base's."""
    wanted = list(_target_integers(search))
    for n in _base_integers(search):
        held = search.array(n)
        # A table that is read whole, in order, leaves no numbers behind.
        for array in (*wanted, np.arange(held.shape[-1])):
            laid_out = _as_shaped(array, held.shape)
            if laid_out is None or np.array_equal(laid_out, held):
                continue
            edited = _with_integers(search, n, laid_out)
            yield Proposal(edited, *_texts(search, n, held, laid_out))


def _base_integers(search: Search) -> list[int]:
    """What the window reads and computes: what chooses rows first, then the rest in order."""
    found = sorted({*search.leaves, *search.computed})
    choosing = {n for op in search.window if stem(op) in _READERS for n in op.inputs[1:]}
    indices = [n for n in found if _are_indices(search.array(n))]
    return sorted(indices, key=lambda n: n not in choosing)


def _target_integers(search: Search) -> Iterator[np.ndarray]:
    seen: list[np.ndarray] = []
    for n in search.target_values:
        held = search.target.values[n].array
        if _are_indices(held) and not any(np.array_equal(held, a) for a in seen):
            seen.append(held)
            yield held


def _are_indices(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and array.size >= _FEWEST


def _as_shaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    if array.size == np.prod(shape):
        return array.reshape(shape)
    # An axis of length one at the end holds the index of one axis, as XLA's gather has it.
    for candidate in (array, array[..., 0] if array.shape[-1] == 1 else array):
        try:
            return np.broadcast_to(candidate, shape)
        except ValueError:
            continue
    return None


def _with_integers(search: Search, n: int, array: np.ndarray) -> list[Operation]:
    change = constant(array.astype(np.int64))
    producer = search.program.producer(n)
    if producer is not None and producer in search.window and producer.outputs[0] == n:
        return [with_output(search.program, producer, change)]
    return [
        with_input(search.program, operation, operation.inputs.index(n), change)
        for operation in search.window
        if n in operation.inputs
    ]


def other_rows(search: Search) -> Iterator[Proposal]:
    """Rows of the same table that the base reads by other numbers, long before its window."""
    found = {m: _origin(search.target, m) for m in search.target_values}
    others = {m: origin for m, origin in found.items() if origin is not None}
    for operation in search.window:
        for index, n in enumerate(operation.inputs):
            own = _origin(search.program, n)
            if own is None:
                continue
            for m, other in others.items():
                if search.target.values[m].array.size != search.array(n).size:
                    continue
                texts = _texts_of_rows(search, own, other)
                if texts is None:
                    continue
                for array in search.in_layout_of(m, search.array(n).shape):
                    edited = with_input(search.program, operation, index, constant(array))
                    yield Proposal([edited], *texts, origin=own.source)


def _origin(program: Program, n: int) -> Operation | None:
    """The read of a table that a value holds, through views and products by constants."""
    for _ in range(_FARTHEST):
        producer = program.producer(n)
        if producer is None:
            return None
        if stem(producer) in _READERS and len(producer.inputs) > 1:
            return producer
        computed = [m for m in producer.inputs if program.values[m].kind == "computed"]
        if len(computed) != 1:
            return None
        n = computed[0]
    return None


def _texts_of_rows(search: Search, own: Operation, other: Operation) -> tuple[str, str] | None:
    held = search.array(_chosen_by(own))
    wanted = search.target.values[_chosen_by(other)].array
    if not (_are_indices(held) and _are_indices(wanted)):
        return None
    if held.size == wanted.size and np.array_equal(held.ravel(), wanted.ravel()):
        return None
    what = _role(search, _chosen_by(own))
    wanted = wanted[..., 0] if wanted.shape[-1] == 1 else wanted
    return f"{what} {_describe(search, held)}", f"{what} {_describe(search, wanted)}"


def _chosen_by(reader: Operation) -> int:
    """The whole numbers that choose the rows: the last operand."""
    return reader.inputs[-1]


def _texts(search: Search, n: int, held: np.ndarray, wanted: np.ndarray) -> tuple[str, str]:
    buckets = _bucket_texts(search, n, held, wanted)
    if buckets is not None:
        return buckets
    what = _role(search, n)
    return f"{what} {_describe(search, held, wanted)}", f"{what} {_describe(search, wanted, held)}"


def _role(search: Search, n: int) -> str:
    """What whole numbers are for, by what reads them first."""
    reached = {n}
    for operation in search.state.operations:
        if not any(m in reached for m in operation.inputs):
            continue
        name = stem(operation)
        if name in _READERS and operation.inputs[0] not in reached:
            rows = search.array(operation.inputs[0]).shape
            return f"rows of the {_READERS[name]} ({' x '.join(map(str, rows))})"
        if name in ("cos", "sin"):
            return "positions of the angles"
        reached.update(operation.outputs)
    return "indices"


def describe_positions(array: np.ndarray, other: np.ndarray) -> str:
    """Positions by column, of every row of the batch alike, or the first of them."""
    if np.ptp(array) == 0:
        return f"position {array.flat[0]} everywhere"
    rows = array.reshape(-1, array.shape[-1])
    if (np.diff(rows) == 1).all() and np.ptp(rows[:, 0]) == 0:
        return f"positions from {rows[0, 0]} on"
    differs = (array != other).reshape(rows.shape).any(-1) if array.shape == other.shape else [1]
    return f"positions {_start(rows[int(np.argmax(differs))])}"


def _start(numbers: np.ndarray) -> str:
    shown = " ".join(map(str, numbers[:_MOST_SHOWN]))
    return shown + (" ..." if len(numbers) > _MOST_SHOWN else "")


def _describe(search: Search, array: np.ndarray, other: np.ndarray | None = None) -> str:
    """The rule that gives these numbers, or the first of them."""
    for name, rule in _rules(search, array):
        if np.array_equal(rule, array):
            return name
    if np.ptp(array) == 0:
        return f"{array.flat[0]} everywhere"
    longest = int(np.argmax(array.shape))
    lines = np.moveaxis(array, longest, -1).reshape(-1, array.shape[longest])
    at = 0
    if other is not None:
        differs = np.moveaxis(array != other, longest, -1).reshape(lines.shape).any(-1)
        at = int(np.argmax(differs))
    return _start(lines[at])


def _rules(search: Search, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(text, numbers) of what they may be: given, counted over a mask, by column."""
    shape = array.shape
    for name, number in search.program.named("input").items():
        given = search.array(number)
        if given.dtype.kind not in "iub":
            continue
        kept = given.astype(bool).astype(np.int64)
        counted = kept.cumsum(-1)
        rules = [
            (f"as given in {name}", given),
            (f"counting where {name} is True, from 0", np.maximum(counted - 1, 0)),
            (f"counting where {name} is True, from 0, and 1 elsewhere",
             np.where(kept, counted - 1, 1)),
            (f"counting where {name} is True, from 1", counted),
            (f"counting where {name} is True, from 1, and 0 elsewhere", counted * kept),
        ]  # fmt: skip
        if given.dtype != bool and not np.isin(given, (0, 1)).all():
            rules = rules[:1]
        for text, rule in rules:
            laid_out = _as_shaped(rule, shape)
            if laid_out is not None:
                yield text, laid_out
    for axis, length in enumerate(shape):
        if length > 2:
            along = np.arange(length).reshape([-1 if i == axis else 1 for i in range(len(shape))])
            start = int(array.flat[0])
            text = f"by column from {start} on" if start else "by column: 0, 1, 2, ..."
            yield text, np.broadcast_to(along + start, shape)


def _bucket_texts(
    search: Search, n: int, held: np.ndarray, wanted: np.ndarray
) -> tuple[str, str] | None:
    """Buckets of distances, told by the rule that sorts distances into them."""
    tables = [op.inputs[0] for op in search.state.operations if stem(op) in _READERS]
    counts = {search.array(table).shape[0] for table in tables if search.array(table).ndim == 2}
    for ahead in _distances(search, n, held.size):
        ours, theirs = (_by_distance(ahead, array) for array in (held, wanted))
        if ours is None or theirs is None:
            continue
        for count in sorted(counts):
            if max(*ours.values(), *theirs.values()) < count:
                found = bucket_differences(count, ours, theirs)
                if found is not None:
                    return found
    return None


def _distances(search: Search, n: int, size: int) -> Iterator[np.ndarray]:
    """How far keys stand ahead of their queries, from whole numbers that lead to the buckets."""
    for number in sorted({*search.leaves, *search.computed}):
        held = search.array(number)
        if number != n and held.dtype.kind in "iu" and held.size == size and held.min() < 0:
            yield held
            yield -held


def _by_distance(ahead: np.ndarray, buckets: np.ndarray) -> dict[int, int] | None:
    """The bucket of every distance, if the distance alone decides."""
    flat = buckets.ravel()
    distances, first, inverse = np.unique(ahead.ravel(), return_index=True, return_inverse=True)
    if not np.array_equal(flat[first][inverse], flat):
        return None
    return dict(zip(distances.tolist(), flat[first].tolist(), strict=True))
