"""Arrays that a model cuts up before it computes with them, taken for several: fused projections.

A JAX model may keep q, k and v in one kernel, or all layers in one array. What is cut along an axis
before its first computation is matched part by part, and joined again in the map.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from parity.models.model import JaxModel
from parity.programs.program import Operation, Program
from parity.weights.layout import Joined, Layout, Shape, Stacked
from parity.weights.uses import LAYOUTS, Part, run_on_places
from parity.weights.weight_map import Entry, WeightMap

_CUTS = frozenset(
    {"slice", "split", "dynamic_slice", "slice of scan", "aten.slice.Tensor", "aten.split.Tensor",
     "aten.split_with_sizes.default", "aten.select.int", "aten.unbind.int"}
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A part of an array.

    Args:
        name: its own.
        array: the name of the array.
        axis, start, stop: where in it.
        single: whether the part is one layer of a stack, without the axis of the stack.
        value: the part as a value of the run.
    """

    name: str
    array: str
    axis: int
    start: int
    stop: int
    single: bool
    value: Part = field(compare=False)

    def cut(self, array: np.ndarray) -> np.ndarray:
        at = (slice(None),) * self.axis
        if self.single:
            return array[(*at, self.start)]
        return array[(*at, slice(self.start, self.stop))]


def find_sections(program: Program) -> list[Section]:
    """The parts of every parameter that is read in parts alone, which together are the whole."""
    readers = program.readers()
    found = []
    for name, number in program.named("parameter").items():
        if readers.get(number):
            found += _sections_of(program, readers, name, number)
    return found


def _sections_of(
    program: Program, readers: Mapping[int, Sequence[Operation]], name: str, number: int
) -> list[Section]:
    shape = program.values[number].array.shape
    boxes: dict[tuple[int, int, int], tuple[int, np.ndarray]] = {}
    for cut, places in _cuts(program, readers, number):
        box = _box(places, shape)
        if box is None:
            return []
        boxes.setdefault(box, (cut, places))
    axes = {axis for axis, _, _ in boxes}
    if len(boxes) < 2 or len(axes) != 1:
        return []
    (axis,) = axes
    ordered = sorted(boxes)
    ends = [0, *(stop for _, _, stop in ordered)]
    if [start for _, start, _ in ordered] != ends[:-1] or ends[-1] != shape[axis]:
        return []
    single = all(stop - start == 1 for _, start, stop in ordered) and len(shape) > 1
    return [
        Section(f"{name}#{i}", name, *box, single, _part(*boxes[box], shape, box, single))
        for i, box in enumerate(ordered)
    ]


def _part(
    number: int, places: np.ndarray, shape: Shape, box: tuple[int, int, int], single: bool
) -> Part:
    """A part as a value of the run; its places counted in the part alone."""
    axis, start, stop = box
    within = shape[:axis] + (() if single else (stop - start,)) + shape[axis + 1 :]
    flat = places.reshape(-1)
    ranks = np.searchsorted(np.sort(flat), flat).reshape(places.shape)
    return Part(number, ranks, within)


def _cuts(
    program: Program, readers: Mapping[int, Sequence[Operation]], number: int
) -> Iterator[tuple[int, np.ndarray]]:
    """What is cut out of a value, with the places of its elements; the whole where none is cut."""
    shape = program.values[number].array.shape
    waiting = [(number, np.arange(prod(shape), dtype=np.float64).reshape(shape), False)]
    while waiting:
        value, places, is_part = waiting.pop()
        for operation in readers.get(value, ()):
            is_cut = operation.name in _CUTS and operation.inputs[0] == value
            if not is_cut and (operation.name not in LAYOUTS or is_part):
                yield value, places
                continue
            made = run_on_places(program, operation, places)
            for output, part in zip(operation.outputs, made, strict=True):
                if is_cut and part.size < places.size:
                    yield output, part
                else:
                    waiting.append((output, part, is_part))


def _box(places: np.ndarray, shape: Shape) -> tuple[int, int, int] | None:
    """(axis, start, stop) of a part that is whole along every other axis."""
    at = np.unravel_index(np.sort(places.reshape(-1)).astype(int), shape)
    spans = [(int(i.min()), int(i.max()) + 1) for i in at]
    cut = [axis for axis, (a, b) in enumerate(spans) if (a, b) != (0, shape[axis])]
    if len(cut) != 1 or prod(b - a for a, b in spans) != places.size:
        return None
    return cut[0], *spans[cut[0]]


def group_sections(sections: Sequence[Section]) -> dict[str, list[Section]]:
    """The sections of every array that is cut up."""
    found: dict[str, list[Section]] = {}
    for section in sections:
        found.setdefault(section.array, []).append(section)
    return found


def cut_up(model: JaxModel, sections: Sequence[Section]) -> JaxModel:
    """The model with the sections in place of their arrays."""
    parts = group_sections(sections)
    arrays: dict[str, np.ndarray] = {}
    origin: dict[str, str] = {}
    for name, array in model.arrays.items():
        cut = {s.name: s.cut(array) for s in parts.get(name, ())} or {name: array}
        arrays |= cut
        origin |= dict.fromkeys(cut, name)
    kinds = {n: model.kinds[origin[n]] for n in arrays if origin[n] in model.kinds}
    trainable = frozenset(n for n in arrays if origin[n] in model.trainable)
    return replace(model, arrays=arrays, kinds=kinds, trainable=trainable)


def join_sections(
    found: WeightMap, sections: Sequence[Section], shapes: Mapping[str, Shape]
) -> WeightMap:
    """The map of the whole arrays, from that of the sections.

    Args:
        shapes: of JAX's arrays.
    """
    if not sections:
        return found
    made = {entry.jax: entry for entry in found.entries}
    parts = group_sections(sections)
    entries = []
    for name in shapes:
        if name in made:
            entries.append(made[name])
        elif name in parts and all(section.name in made for section in parts[name]):
            entries.append(Entry(name, join_layouts(parts[name], made)))
    names = {section.name for section in sections}
    choices = [c for c in found.choices if not names & {entry.jax for entry in c.entries}]
    return replace(found, entries=entries, jax_shapes=shapes, choices=choices)


def join_layouts(sections: Sequence[Section], entries: Mapping[str, Entry]) -> Layout:
    """The layout of a whole array, from those of its sections."""
    layouts = tuple(entries[section.name].to_jax for section in sections)
    kind = Stacked if sections[0].single else Joined
    return kind(layouts, sections[0].axis)
