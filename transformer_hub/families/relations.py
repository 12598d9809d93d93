"""The four relations between a checkpoint's tensors and ours, each converted in both directions.

A table is a sequence of relations between patterns of names: `{i}` is a layer, `{e}` an expert, and
`*` stands for weight and for bias. `expand` makes the links of one model from a table: it keeps the
relations whose parameters the model has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]
Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Same:
    """One tensor under two names."""

    theirs: str
    ours: str

    def their_shapes(self, shapes: Sequence[Shape], count: int) -> list[Shape]:
        return list(shapes)

    def to_ours(self, arrays: Arrays, shapes: Sequence[Shape]) -> list[np.ndarray]:
        return list(arrays)

    def to_theirs(self, arrays: Arrays) -> list[np.ndarray]:
        return list(arrays)


@dataclass(frozen=True)
class Transposed(Same):
    """A matrix they hold as [in, out] and we as [out, in]; a bias is the same."""

    def their_shapes(self, shapes: Sequence[Shape], count: int) -> list[Shape]:
        return [shape[::-1] for shape in shapes]

    def to_ours(self, arrays: Arrays, shapes: Sequence[Shape]) -> list[np.ndarray]:
        return [array.T for array in arrays]

    def to_theirs(self, arrays: Arrays) -> list[np.ndarray]:
        return [array.T for array in arrays]


@dataclass(frozen=True)
class Fused:
    """One tensor of theirs that holds the rows, the outputs, of several of ours.

    The rows of each of ours are cut into `groups` equal parts. Theirs has the first part of each,
    then the second part of each, and so on: one group is [q | k | v], a group per head is
    [N, 3, H].
    """

    theirs: str
    ours: tuple[str, ...]
    groups: int = 1
    transposed: bool = False

    def their_shapes(self, shapes: Sequence[Shape], count: int) -> list[Shape]:
        axis = _row_axis(len(shapes[0]))
        fused = list(shapes[0])
        fused[axis] = sum(shape[axis] for shape in shapes)
        return [tuple(reversed(fused) if self.transposed else fused)]

    def to_ours(self, arrays: Arrays, shapes: Sequence[Shape]) -> list[np.ndarray]:
        fused = arrays[0].T if self.transposed else arrays[0]
        axis = _row_axis(fused.ndim)
        widths = [shape[axis] // self.groups for shape in shapes]
        parts = np.split(self._grouped(fused), np.cumsum(widths)[:-1], axis=axis + 1)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def to_theirs(self, arrays: Arrays) -> list[np.ndarray]:
        axis = _row_axis(arrays[0].ndim)
        grouped = np.concatenate([self._grouped(array) for array in arrays], axis=axis + 1)
        shape = self.their_shapes([array.shape for array in arrays], 1)[0]
        return [grouped.reshape(shape[::-1]).T if self.transposed else grouped.reshape(shape)]

    def _grouped(self, array: np.ndarray) -> np.ndarray:
        """[..., rows, columns] as [..., groups, rows / groups, columns]."""
        axis = _row_axis(array.ndim)
        rows = (self.groups, array.shape[axis] // self.groups)
        return array.reshape(array.shape[:axis] + rows + array.shape[axis + 1 :])


@dataclass(frozen=True)
class Stacked:
    """Tensors of theirs, one for each expert, that are one of ours along a new first axis."""

    theirs: str
    ours: str

    def their_shapes(self, shapes: Sequence[Shape], count: int) -> list[Shape]:
        return [shapes[0][1:]] * count

    def to_ours(self, arrays: Arrays, shapes: Sequence[Shape]) -> list[np.ndarray]:
        return [np.stack(arrays)]

    def to_theirs(self, arrays: Arrays) -> list[np.ndarray]:
        return list(arrays[0])


Relation = Same | Fused | Stacked
Table = Sequence[Relation]


@dataclass(frozen=True)
class Link:
    """A relation between named tensors: its patterns with every variable filled in."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    relation: Relation


def _row_axis(axes: int) -> int:
    """The axis of the outputs: the first but for the matrices of stacked experts."""
    return max(axes - 2, 0)


def expand(table: Iterable[Relation], shapes: Mapping[str, Shape], layers: int) -> list[Link]:
    """The links of a model with parameters of these shapes, in the order of the parameters."""
    links = [
        Link(_experts(theirs, shapes[ours[0]]), ours, relation)
        for relation in table
        for theirs, ours in _filled(relation, layers)
        if all(name in shapes for name in ours)
    ]
    place = {name: index for index, name in enumerate(shapes)}
    return sorted(links, key=lambda link: place[link.ours[0]])


def _filled(relation: Relation, layers: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    ours = relation.ours if isinstance(relation.ours, tuple) else (relation.ours,)
    for i in range(layers if "{i}" in ours[0] else 1):
        for leaf in ("weight", "bias") if "*" in ours[0] else ("",):
            yield _fill(relation.theirs, i, leaf), tuple(_fill(name, i, leaf) for name in ours)


def _fill(name: str, layer: int, leaf: str) -> str:
    return name.replace("{i}", str(layer)).replace("*", leaf)


def _experts(theirs: str, shape: Shape) -> tuple[str, ...]:
    count = shape[0] if "{e}" in theirs else 1
    return tuple(theirs.replace("{e}", str(e)) for e in range(count))
