"""What a recorded run does with each array: when it reads it first, and over which axes it sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from parity.align.layouts import matching_layouts
from parity.programs.program import Operation, Program

_LAYOUTS = frozenset(
    {
        "aten.t.default", "aten.transpose.int", "aten.permute.default", "aten.view.default",
        "aten._unsafe_view.default", "aten.reshape.default", "aten.unsqueeze.default",
        "aten.squeeze.dim", "aten.squeeze.dims", "aten.clone.default", "aten.detach.default",
        "aten.alias.default", "aten.expand.default", "aten.as_strided.default",
        "transpose", "reshape", "squeeze", "expand_dims", "copy", "copy_p", "broadcast_in_dim",
        "stop_gradient", "sharding_constraint", "optimization_barrier",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Use:
    """The first computation that an array enters.

    Args:
        axes: the order of its axes in which it is [*batch, *summed over, *others], where it is an
            operand of a product of matrices; () elsewhere.
        summed: how many elements each number of the product is a sum of.
        batch: over how many axes before these the product is repeated.
    """

    axes: tuple[int, ...] = ()
    summed: int = 0
    batch: int = 0


def find_uses(program: Program) -> dict[str, Use]:
    """The use of every parameter that a run reads, in the order of first use."""
    readers = program.readers()
    found: list[tuple[int, str, Use]] = []
    for name, number in program.named("parameter").items():
        if readers.get(number):
            first, use = _first_use(program, readers, number)
            found.append((first, name, use))
    return {name: use for _, name, use in sorted(found, key=lambda each: each[:2])}


def _first_use(
    program: Program, readers: Mapping[int, Sequence[Operation]], number: int
) -> tuple[int, Use]:
    """The number of the operation that first computes with a value, and the use."""
    shape = program.values[number].array.shape
    places = np.arange(prod(shape), dtype=np.float64).reshape(shape)
    operation = readers[number][0]
    while operation.name in _LAYOUTS and len(operation.inputs) == 1:
        following = operation.outputs[0]
        if not readers.get(following):
            break
        array = program.to_framework(places, program.arrays[number].astype("float64")
                                     if program.framework == "jax"
                                     else program.arrays[number].double())  # fmt: skip
        places = np.asarray(program.to_numpy(operation.run([array])[0]))
        number, operation = following, readers[following][0]
    split = _operand_axes(operation, operation.inputs.index(number), places.ndim)
    if split is None or len(np.unique(places)) != places.size or places.size != prod(shape):
        return operation.number, Use()
    batch, summed, others = split
    ordered = places.transpose(*batch, *summed, *others)
    original = np.arange(prod(shape), dtype=np.float64).reshape(shape)
    axes = next(matching_layouts(original, ordered, 0.0), ())
    count = prod(places.shape[axis] for axis in summed)
    return operation.number, Use(axes, count, len(batch))


def _operand_axes(
    operation: Operation, operand: int, rank: int
) -> tuple[list[int], list[int], list[int]] | None:
    """The axes of an operand: of the batch, summed over, others; None where nothing is summed."""
    match operation.name:
        case "aten.mm.default" | "aten.bmm.default":
            first = rank - 1 if operand == 0 else rank - 2
        case "aten.addmm.default" | "aten.baddbmm.default" if operand > 0:
            first = rank - 1 if operand == 1 else rank - 2
        case "dot_general":
            summed, batch = operation.attributes["dimension_numbers"]
            mine, repeated = list(summed[operand]), list(batch[operand])
            others = [axis for axis in range(rank) if axis not in (*mine, *repeated)]
            return repeated, mine, others
        case _:
            return None
    repeated = list(range(rank - 2))
    return repeated, [first], [axis for axis in (rank - 2, rank - 1) if axis != first]
