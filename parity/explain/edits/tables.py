"""Tables that no input enters: cosines and sines of angles, slopes, biases by position."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
import torch

from parity.align.layouts import same
from parity.align.sides import cast
from parity.explain.causes.rotary import identify_spectrum
from parity.explain.edits.edit import Proposal, with_input, with_output
from parity.explain.edits.search import Search
from parity.explain.edits.words import number, stem
from parity.programs.program import Operation

# Angles are solved through arctangents of numbers rounded to float64.
_TOLERANCE = 1e-8
_LARGEST_SHIFT = 64
# So many tables of either side are looked at in pairs.
_MOST_TABLES = 24


@dataclass(frozen=True)
class Angles:
    """amplitude * exp(i frequencies (t + offset)) for t = 0, 1, ...: a table [T, W].

    Args:
        order: which frequency stands in which column.
    """

    frequencies: np.ndarray
    order: np.ndarray
    offset: float
    amplitude: float

    def turns(self, length: int, order: np.ndarray) -> np.ndarray:
        angles = np.outer(np.arange(length) + self.offset, self.frequencies[order])
        return self.amplitude * np.exp(1j * angles)


def other_tables(search: Search) -> Iterator[Proposal]:
    read = {search.pair.base, *(n for op in search.window for n in op.inputs)}
    ours = _tables(search, search.static & read)
    theirs = {
        n: search.target.values[n].array
        for n in search.target_values
        if n in search.target_static and _says_something(search.target.values[n].array)
    }
    yield from _other_angles(search, *_unmatched_tables(search))
    for n, held in ours.items():
        for m in theirs:
            for wanted in search.in_layout_of(m, held.shape):
                if not same(held, wanted, search.tolerance):
                    yield from _exchanged(search, n, held, wanted)


def _unmatched_tables(search: Search) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Tables of both sides that differ: cosines may be read long before their sines."""
    alignment = search.alignment
    ours = _tables(search, search.static & {*alignment.unmatched})
    missing = [n for n in alignment.missing if n in search.target_static]
    theirs = {n: search.target.values[n].array for n in missing}
    theirs = {n: table for n, table in theirs.items() if _says_something(table)}
    return (
        dict(islice(ours.items(), _MOST_TABLES)),
        dict(islice(theirs.items(), _MOST_TABLES)),
    )


def _tables(search: Search, numbers: set[int]) -> dict[int, np.ndarray]:
    found = {n: search.array(n) for n in sorted(numbers) if n not in search.alignment.matches}
    return {n: a for n, a in found.items() if _says_something(a)}


def _says_something(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.size > 2 and bool(np.ptp(array) > 0)


def _other_angles(
    search: Search, ours: dict[int, np.ndarray], theirs: dict[int, np.ndarray]
) -> Iterator[Proposal]:
    """Cosines and sines of other angles, written into the base's tables."""
    right = list(_identified(ours))
    wrong = list(_identified(theirs)) if right else []
    for (cos, sin, base), (_, _, target) in product(right, wrong):
        if len(base.frequencies) != len(target.frequencies):
            continue
        turns = target.turns(_flat(ours[cos]).shape[0], base.order)
        operations: dict[int, Operation] = {}
        for n, part in ((cos, np.real(turns)), (sin, np.imag(turns))):
            for operation in _with_table(search, n, part.reshape(ours[n].shape), operations):
                operations[operation.number] = operation
        texts = _angle_texts(base, target, search.sizes, _use(search, cos))
        if texts is not None:
            yield Proposal(list(operations.values()), *texts)


def _with_table(
    search: Search, n: int, table: np.ndarray, before: dict[int, Operation]
) -> list[Operation]:
    """The table computed as another one, or read as another one where it is given."""
    producer = search.program.producer(n)
    held = torch.tensor(table)

    def change(_: torch.Tensor) -> torch.Tensor:
        return held

    if producer is not None:
        operation = before.get(producer.number, search.state.operations[producer.number])
        return [with_output(search.program, operation, change)]
    return [
        with_input(search.program, before.get(op.number, op), op.inputs.index(n), change)
        for op in search.state.readers.get(n, ())
    ]


def _flat(table: np.ndarray) -> np.ndarray:
    """[T, W], where the other axes are of length one."""
    return table.reshape([n for n in table.shape if n > 1] or [1])


def _identified(tables: dict[int, np.ndarray]) -> Iterator[tuple[int, int, Angles]]:
    """Pairs of tables that are cosines and sines of the same angles."""
    flat = {n: _flat(table) for n, table in tables.items()}
    flat = {n: table for n, table in flat.items() if table.ndim == 2 and len(table) > 2}
    for (n, cos), (m, sin) in product(flat.items(), flat.items()):
        if n != m and cos.shape == sin.shape:
            angles = _solve(cos + 1j * sin)
            if angles is not None:
                yield n, m, angles


def _solve(turns: np.ndarray) -> Angles | None:
    length = np.abs(turns)
    amplitude = float(length.mean())
    if amplitude == 0 or not np.allclose(length, amplitude, _TOLERANCE, 0):
        return None
    found = np.angle(turns[1] * turns[0].conj())
    # Made exact at ever later positions.
    relative = np.angle(turns * turns[0].conj())
    for t in range(1, len(turns)):
        found = (relative[t] + 2 * np.pi * np.round((found * t - relative[t]) / (2 * np.pi))) / t
    moving = np.abs(found) > 1e-12
    if not moving.any():
        return None
    first = int(np.argmax(np.abs(found)))
    offset = float(np.angle(turns[0, first]) / found[first])
    whole = round(offset)
    if abs(offset - whole) > 1e-6 or abs(whole) > _LARGEST_SHIFT:
        return None
    predicted = amplitude * np.exp(1j * np.outer(np.arange(len(turns)) + whole, found))
    if not same(predicted, turns, _TOLERANCE):
        return None
    frequencies: list[float] = []
    order = []
    for f in found:
        at = next((i for i, g in enumerate(frequencies) if abs(f - g) <= _TOLERANCE * abs(g)), None)
        if at is None:
            at = len(frequencies)
            frequencies.append(float(f))
        order.append(at)
    return Angles(np.array(frequencies), np.array(order), float(whole), amplitude)


def _table_text(search: Search, n: int) -> str:
    shape = " x ".join(map(str, search.array(n).shape))
    while (producer := search.program.producer(n)) and len(producer.inputs) == 1:
        n = producer.inputs[0]
    name = search.program.values[n].name
    return f"{name} ({shape})" if name else f"a table of {shape}"


def _use(search: Search, n: int) -> str:
    """What angles are for: rotations multiply what they meet first, sinusoids are added to it."""
    reached = {n}
    for operation in search.state.operations:
        if any(m in reached for m in operation.inputs):
            others = [m for m in operation.inputs if m not in reached]
            if any(m not in search.static for m in others) and stem(operation) in ("mul", "add"):
                return "rotary" if stem(operation) == "mul" else "sinusoid"
            reached.update(operation.outputs)
    return "rotary"


def _angle_texts(
    base: Angles, target: Angles, sizes: list[int], use: str
) -> tuple[str, str] | None:
    right, wrong = base.frequencies, target.frequencies
    if abs(base.amplitude - target.amplitude) > _TOLERANCE:
        texts = [f"cosines and sines times {number(a.amplitude)}" for a in (base, target)]
        return texts[0], texts[1]
    if np.allclose(right, -wrong, _TOLERANCE, 0):
        if base.offset != target.offset:
            return f"{use} positions in order", f"{use} positions reversed"
        return f"{use} angles forwards", f"{use} angles backwards, of the opposite sign"
    if not np.allclose(right, wrong, _TOLERANCE, 0):
        return _frequency_texts(right, wrong, sizes, use)
    if base.offset != target.offset:
        texts = [f"{use} positions from {a.offset:g} on" for a in (base, target)]
        return texts[0], texts[1]
    return None


def _frequency_texts(
    base: np.ndarray, target: np.ndarray, sizes: list[int], use: str
) -> tuple[str, str]:
    right, wrong = identify_spectrum(base), identify_spectrum(target)
    if right is None or wrong is None:
        texts = [" ".join(f"{f:.4g}" for f in side) for side in (base, target)]
        return f"{use} angles {texts[0]} per position", f"{use} angles {texts[1]} per position"
    if abs(wrong.theta / right.theta - 1) <= _TOLERANCE:
        return f"{use} frequencies {right.scaling()}", f"{use} frequencies {wrong.scaling()}"
    width = 2 * len(base)
    for ours, theirs, order in ((right, wrong, 1), (wrong, right, -1)):
        other = width * np.log(ours.theta) / np.log(theirs.theta)
        if round(other) in sizes and abs(other - round(other)) < 1e-6:
            form = f"{use} frequencies theta**(-2i / {{}}), theta {ours.theta:.6g}"
            base_text, target_text = [form.format(n) for n in (width, round(other))][::order]
            return base_text, target_text
    return f"{use} base theta {right.theta:.6g}", f"{use} base theta {wrong.theta:.6g}"


def _angles_of(table: np.ndarray) -> Angles | None:
    """A table (t + offset) f of angles, not yet their cosines."""
    flat = _flat(table)
    if flat.ndim != 2 or len(flat) < 3:
        return None
    steps = flat[1] - flat[0]
    if not steps.all():
        return None
    offset = float(np.round(flat[0, 0] / steps[0], 9))
    if not same(np.outer(np.arange(len(flat)) + offset, steps), flat, _TOLERANCE):
        return None
    return Angles(steps, np.arange(len(steps)), offset, 1.0)


def _raw_angle_texts(
    search: Search, n: int, held: np.ndarray, wanted: np.ndarray
) -> tuple[str, str] | None:
    reached, names = {n}, set()
    for operation in search.state.operations:
        if any(m in reached for m in operation.inputs):
            names.add(stem(operation))
            reached.update(m for m in operation.outputs if m in search.static)
    ours, theirs = (_angles_of(table) for table in (held, wanted))
    if ours is None or theirs is None or not names & {"cos", "sin"}:
        return None
    return _angle_texts(ours, theirs, search.sizes, _use(search, n))


def _stacked_texts(
    search: Search, n: int, held: np.ndarray, wanted: np.ndarray
) -> tuple[str, str] | None:
    """Cosines and sines of the same angles in one table, along an axis of length two."""
    for axis in (i for i, length in enumerate(held.shape) if length == 2):
        sides = []
        for table in (held, wanted):
            cos, sin = (_flat(part) for part in np.moveaxis(table, axis, 0))
            sides.append(_solve(cos + 1j * sin) if cos.ndim == 2 and len(cos) > 2 else None)
        ours, theirs = sides
        if ours is None or theirs is None:
            continue
        if len(ours.frequencies) == len(theirs.frequencies):
            return _angle_texts(ours, theirs, search.sizes, _use(search, n))
    return None


def _rounded_texts(what: str, held: np.ndarray, wanted: np.ndarray) -> tuple[str, str] | None:
    for dtype in ("float32", "bfloat16", "float16"):
        rounded = [cast(cast(table, dtype), str(table.dtype)) for table in (held, wanted)]
        if np.array_equal(rounded[0], wanted):
            return what, f"the same table rounded to {dtype}"
        if np.array_equal(rounded[1], held):
            return f"{what} rounded to {dtype}", "the same table, not rounded"
    return None


def _exchanged(search: Search, n: int, held: np.ndarray, wanted: np.ndarray) -> Iterator[Proposal]:
    operations = _with_table(search, n, wanted, {})
    what = _table_text(search, n)
    texts = (
        _wave_texts(held, wanted)
        or _stacked_texts(search, n, held, wanted)
        or _raw_angle_texts(search, n, held, wanted)
        or _rounded_texts(what, held, wanted)
    )
    if texts is not None:
        yield Proposal(operations, *texts)
        return
    for axis in range(held.ndim):
        rest = tuple(i for i in range(held.ndim) if i != axis)
        with np.errstate(all="ignore"):
            along = (wanted * held).sum(rest) / np.square(held).sum(rest)
        shape = [-1 if i == axis else 1 for i in range(held.ndim)]
        if held.shape[axis] * 3 <= held.size and same(
            held * along.reshape(shape), wanted, _TOLERANCE
        ):
            whole = np.allclose(along, along[0], _TOLERANCE, 0)
            shown = " ".join(f"{value:.4g}" for value in (along[:1] if whole else along))
            yield Proposal(
                operations,
                what,
                f"the same table times {shown}" + ("" if whole else f" along axis {axis}"),
            )
            return
    for axis in range(held.ndim):
        for step in range(-min(held.shape[axis] - 1, 8), min(held.shape[axis], 9)):
            if step and held.shape[axis] > abs(step) + 2 and _is_shifted(held, wanted, axis, step):
                yield Proposal(
                    operations, what, f"the same table moved by {step} along axis {axis}"
                )
                return
    yield Proposal(
        operations, what, f"other numbers in {what}: {_start(wanted)} for {_start(held)}"
    )


@dataclass(frozen=True)
class Waves:
    """Sines and cosines of the same angles side by side.

    Args:
        order: which come where.
    """

    order: str
    angles: Angles


def _waves(table: np.ndarray) -> Waves | None:
    flat = _flat(table)
    if flat.ndim != 2 or len(flat) < 3 or flat.shape[1] < 2:
        return None
    half = flat.shape[1] // 2
    columns = {
        "in halves": (flat[:, :half], flat[:, -half:]),
        "in turn": (flat[:, : 2 * half : 2], flat[:, 1::2]),
    }
    for place, (a, b) in columns.items():
        for first, turns in (
            ("sines, then cosines", b + 1j * a),
            ("cosines, then sines", a + 1j * b),
        ):
            angles = _solve(turns)
            # Sines of negative angles are cosines' neighbours too: frequencies are positive.
            if angles is not None and (angles.frequencies > 0).all():
                return Waves(f"{first}, {place}", angles)
    return None


def _wave_texts(held: np.ndarray, wanted: np.ndarray) -> tuple[str, str] | None:
    ours, theirs = _waves(held), _waves(wanted)
    if ours is None or theirs is None:
        return None
    if ours.order != theirs.order:
        return f"sinusoids: {ours.order}", f"sinusoids: {theirs.order}"
    if ours.angles.offset != theirs.angles.offset:
        texts = [f"sinusoids of positions from {w.angles.offset:g} on" for w in (ours, theirs)]
        return texts[0], texts[1]
    right, wrong = (identify_spectrum(w.angles.frequencies) for w in (ours, theirs))
    if right is None or wrong is None:
        return None
    ends = [np.log(right.theta) / _first_step(w.angles) for w in (ours, theirs)]
    if all(abs(2 * end - round(2 * end)) < 1e-6 for end in ends) and ends[0] != ends[1]:
        return f"sinusoids' exponents i / {ends[0]:g}", f"sinusoids' exponents i / {ends[1]:g}"
    return f"sinusoids of base {right.theta:.6g}", f"sinusoids of base {wrong.theta:.6g}"


def _first_step(angles: Angles) -> float:
    """log(f_0 / f_1), which is log(theta) over the number of sines."""
    return float(np.log(angles.frequencies[0] / angles.frequencies[1]))


def _start(table: np.ndarray) -> str:
    return " ".join(f"{value:.4g}" for value in table.ravel()[:4]) + " ..."


def _is_shifted(held: np.ndarray, wanted: np.ndarray, axis: int, step: int) -> bool:
    a, b = np.moveaxis(held, axis, 0), np.moveaxis(wanted, axis, 0)
    a, b = (a[step:], b[:-step]) if step > 0 else (a[:step], b[-step:])
    return bool(np.ptp(a, 0).any()) and same(b, a, _TOLERANCE)


def holds_rotation(search: Search, operations: list[Operation]) -> bool:
    """Whether these operations read cosines and sines of the same angles."""
    read = {n for operation in operations for n in operation.inputs}
    tables = {n: search.array(n) for n in read & search.static}
    held = {n: table for n, table in tables.items() if _says_something(table)}
    return next(_identified(held), None) is not None
