"""Rotations by the angles of other positions, or along another axis."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

import numpy as np
import torch
from torch import Tensor

from parity.align.contents import says_something
from parity.explain.edits.edit import Proposal, computing
from parity.explain.edits.indices import describe_positions
from parity.explain.edits.search import FEWEST_NUMBERS, Search
from parity.explain.edits.words import axes_text, stem
from parity.programs.program import Operation, Program, Source

_TOLERANCE = 1e-8
# Positions are looked for up to so many turns, in a column whose angle is the position itself.
_MOST_ROUNDS = 400
_MOST_TABLES = 12


def other_rotations(search: Search) -> Iterator[Proposal]:
    """The target's cosines and sines in the place of those that the base multiplies by."""
    products = [operation for operation in search.window if stem(operation) == "mul"]
    read = {n for operation in products for n in operation.inputs}
    theirs = search.target.values
    own = _turns(read, search.array)
    others = _turns(search.target_values, lambda n: theirs[n].array)
    for (cos, sin), (other_cos, other_sin) in product(own, others):
        held = theirs[other_cos].array + 1j * theirs[other_sin].array
        ours = _positions(search.array(cos) + 1j * search.array(sin))
        if ours is None:
            continue
        for turns in _placements(held, [op for op in products if cos in op.inputs], search):
            texts = _texts(ours, _positions(turns))
            if texts is not None:
                tables = {cos: np.real(turns), sin: np.imag(turns)}
                edited = _with_tables(search, products, tables)
                yield Proposal(edited, *texts, origin=_source_of(search.program, cos))


def _turns(among: Collection[int], array: Callable[[int], np.ndarray]) -> list[tuple[int, int]]:
    """Pairs of tables of one shape that hold cosines and sines."""
    tables = [n for n in sorted(among) if _may_be_table(array(n))][:_MOST_TABLES]
    found = []
    for n, m in combinations(tables, 2):
        if array(n).shape == array(m).shape:
            length = np.hypot(array(n), array(m))
            if np.allclose(length, length.flat[0], _TOLERANCE, 0):
                found += [(n, m), (m, n)]
    return found


def _source_of(program: Program, n: int) -> Source | None:
    """The line that read or computed a table, before it was only viewed otherwise."""
    producer = program.producer(n)
    while producer is not None and len(producer.inputs) == 1:
        before = program.producer(producer.inputs[0])
        if before is None:
            break
        producer = before
    return producer.source if producer is not None and producer.source.line else None


def _may_be_table(array: np.ndarray) -> bool:
    return array.size >= FEWEST_NUMBERS and says_something(array)


def _placements(
    held: np.ndarray, products: Collection[Operation], search: Search
) -> Iterator[np.ndarray]:
    """A table with its axes wherever what the products compute has axes of their lengths."""
    lengths = [n for n in held.shape if n > 1]
    for shape in {search.array(operation.outputs[0]).shape for operation in products}:
        for axes in combinations(range(len(shape)), len(lengths)):
            if all(shape[axis] == n for axis, n in zip(axes, lengths, strict=True)):
                yield held.reshape([n if i in axes else 1 for i, n in enumerate(shape)])


def _with_tables(
    search: Search, products: Sequence[Operation], tables: Mapping[int, np.ndarray]
) -> list[Operation]:
    edited = []
    for operation in products:
        for n in operation.inputs:
            if n in tables:
                factor = torch.tensor(np.ascontiguousarray(tables[n]))
                others = [m for m in operation.inputs if m != n]
                edited.append(computing(search.program, operation, others, _multiply_by(factor)))
    return edited


def _multiply_by(factor: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: x * factor


def _texts(ours: np.ndarray, theirs: np.ndarray | None) -> tuple[str, str] | None:
    """Which positions each side turns by, or along which axis they change."""
    if theirs is None:
        return None
    axes = [[i for i, n in enumerate(side.shape) if n > 1] for side in (ours, theirs)]
    if ours.ndim == theirs.ndim and axes[0] != axes[1] and axes[0] and axes[1]:
        sides = zip(axes, (ours, theirs), strict=True)
        texts = [f"positions along {axes_text(moving, side.shape)}" for moving, side in sides]
    elif np.array_equal(ours, theirs):
        return None
    else:
        flat = [np.atleast_1d(side.squeeze()) for side in (ours, theirs)]
        texts = [describe_positions(a, b) for a, b in zip(flat, flat[::-1], strict=True)]
    return f"rotary {texts[0]}", f"rotary {texts[1]}"


def _positions(turns: np.ndarray) -> np.ndarray | None:
    """[..., 1]: the positions p whose angles p f make these turns; one frequency is 1 by custom."""
    angles = np.angle(turns)
    whole = 2 * np.pi * np.arange(-_MOST_ROUNDS, _MOST_ROUNDS + 1)
    for column in range(turns.shape[-1]):
        candidates = angles[..., column, None] + whole
        nearest = np.abs(candidates - np.round(candidates)).argmin(-1)[..., None]
        found = np.take_along_axis(candidates, nearest, -1)
        if np.abs(found - np.round(found)).max() < _TOLERANCE and np.ptp(angles[..., column]) > 0:
            return np.round(found).astype(np.int64)
    return None
