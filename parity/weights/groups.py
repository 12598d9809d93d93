"""Layers that are one on one side and several on the other: stacked by a scan, or fused."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from parity.weights.layout import Joined, Layout, Part, Permuted, Shape, Source
from parity.weights.pairing import Pairing, pair_units
from parity.weights.tokens import rank_in_fused, read_names, similarity
from parity.weights.units import Slot, Stack, Unit


def stacks(units: Sequence[Unit]) -> list[Unit]:
    """Layers whose paths differ in one number, and whose arrays have the same shapes."""
    alike: dict[tuple, list[tuple[int, Unit]]] = defaultdict(list)
    for unit in units:
        shapes = tuple((slot.role, slot.shape) for slot in unit.slots)
        for number in re.finditer(r"\d+", unit.path):
            template = f"{unit.path[: number.start()]}*{unit.path[number.end() :]}"
            alike[template, shapes].append((int(number[0]), unit))
    found = []
    for (template, _), members in alike.items():
        if len(members) > 1:
            items = tuple(unit for _, unit in sorted(members, key=lambda member: member[0]))
            first = items[0]
            slots = tuple(slot for item in items for slot in item.slots)
            path = template.replace("*.", "").replace("*", "").strip(".")
            found.append(Stack(path, first.kind, slots, first.position, items))
    return found


def fused_pairings(theirs: Sequence[Unit], ours: Sequence[Unit]) -> Iterator[tuple[Unit, Pairing]]:
    """Projections that are one on one side and several on the other, best names first.

    The order within a fused one is query, key, value, or gate, up, or that of definition.
    """
    found = [*_split_by_ours(theirs, ours), *_joined_for_ours(theirs, ours)]
    found.sort(key=lambda each: each[0])
    read: set[str] = set()
    made: set[str] = set()
    for _, pairs in found:
        used = {name for _, pairing in pairs for name in pairing.used}
        names = {name for _, pairing in pairs for name in pairing.options}
        if not used & read and not names & made:
            read |= used
            made |= names
            yield from pairs


Candidate = tuple[tuple[float, float], list[tuple[Unit, Pairing]]]


def _split_by_ours(theirs: Sequence[Unit], ours: Sequence[Unit]) -> Iterator[Candidate]:
    """Torch's fused projection as several layers of JAX's."""
    for torch_unit in theirs:
        matrix = _matrix(torch_unit)
        if matrix is None:
            continue
        inner, width = matrix.shape
        for group in _siblings(ours, inner, width):
            pairs, start = [], 0
            for unit in group:
                stop = start + prod(_widest(unit).shape) // inner
                pairing = pair_units(_rows(torch_unit, start, stop), unit)
                if pairing and pairing.cost < 1:
                    pairs.append((unit, pairing))
                start = stop
            if len(pairs) == len(group):
                yield _rank(torch_unit, group, len(group)), pairs


def _joined_for_ours(theirs: Sequence[Unit], ours: Sequence[Unit]) -> Iterator[Candidate]:
    """Several projections of torch's as one layer of JAX's."""
    for jax_unit in ours:
        size = prod(_widest(jax_unit).shape)
        inners = {m.shape[0] for unit in theirs if (m := _matrix(unit)) and size % m.shape[0] == 0}
        for inner in inners:
            for group in _siblings(theirs, inner, size // inner):
                joined = _join(group)
                pairing = joined and pair_units(joined, jax_unit)
                if pairing and pairing.cost < 1:
                    yield _rank(jax_unit, group, len(group)), [(jax_unit, pairing)]


def _rank(fused: Unit, group: Sequence[Unit], count: int) -> tuple[float, float]:
    names = read_names([fused.path, *(unit.path for unit in group)])
    alike = sum(similarity(names[fused.path], names[unit.path]) for unit in group) / count
    return 1 - alike, abs(fused.position - group[0].position)


def _siblings(units: Sequence[Unit], inner: int, width: int) -> Iterator[tuple[Unit, ...]]:
    """Layers of one parent whose widths add up, in the order in which they are fused."""
    families: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        if prod(_widest(unit).shape) % inner == 0 and len(_widest(unit).shape) > 1:
            families[re.sub(r"[/.]?[^/.]*$", "", unit.path)].append(unit)
    for members in families.values():
        members.sort(key=lambda unit: (rank_in_fused(unit.path), unit.position))
        for count in range(min(len(members), 4), 1, -1):
            for group in combinations(members, count):
                if sum(prod(_widest(unit).shape) // inner for unit in group) == width:
                    yield group


def _widest(unit: Unit) -> Slot:
    return max(unit.slots, key=lambda slot: prod(slot.shape))


def _matrix(unit: Unit) -> Slot | None:
    return next((s for s in unit.slots if s.role == "matrix" and len(s.shape) == 2), None)


def _rows(unit: Unit, start: int, stop: int) -> Unit:
    """The layer with a part of its outputs."""

    def cut(slot: Slot) -> Slot:
        if slot.role == "matrix":
            shape: Shape = (slot.shape[0], stop - start)
            if isinstance(slot.layout, Permuted) and isinstance(slot.layout.of, Source):
                part = Part(slot.layout.of, 0, start, stop)
                return replace(slot, shape=shape, layout=Permuted(part, (1, 0)))
            return replace(slot, shape=shape, layout=Part(slot.layout, 1, start, stop))
        return replace(slot, shape=(stop - start,), layout=Part(slot.layout, 0, start, stop))

    return replace(unit, slots=tuple(cut(slot) for slot in unit.slots))


def _join(group: Sequence[Unit]) -> Unit | None:
    """Layers of the same inputs as one."""
    roles = [tuple(slot.role for slot in unit.slots) for unit in group]
    if len(set(roles)) != 1 or not set(roles[0]) <= {"matrix", "bias"}:
        return None
    slots = []
    for column in zip(*(unit.slots for unit in group), strict=True):
        layouts: tuple[Layout, ...] = tuple(slot.layout for slot in column)
        if column[0].role == "matrix":
            shape: Shape = (column[0].shape[0], sum(slot.shape[1] for slot in column))
            joined = _join_columns(layouts)
        else:
            shape, joined = (sum(slot.shape[0] for slot in column),), Joined(layouts, 0)
        slots.append(replace(column[0], layout=joined, shape=shape))
    return Unit(group[0].path, "Linear", tuple(slots), group[0].position)


def _join_columns(layouts: Sequence[Layout]) -> Layout:
    inner = [layout.of for layout in layouts if isinstance(layout, Permuted)]
    if len(inner) == len(layouts):
        return Permuted(Joined(tuple(inner), 0), (1, 0))
    return Joined(tuple(layouts), 1)
