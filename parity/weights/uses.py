"""What a recorded run does with each array: when it reads it first, and over which axes it sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from parity.align.layouts import matching_layouts
from parity.programs.program import Operation, Program

LAYOUTS = frozenset(
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
        role: what the computation makes of it: "matrix", "table", "scale", "bias", or "".
    """

    axes: tuple[int, ...] = ()
    summed: int = 0
    batch: int = 0
    role: str = ""


@dataclass(frozen=True)
class Part:
    """A parameter or a part of one, as a value of the run.

    Args:
        number: of the value.
        places: for each element of the value, where in the parameter it lies.
        shape: of the parameter.
    """

    number: int
    places: np.ndarray
    shape: tuple[int, ...]


def find_uses(program: Program, parts: Mapping[str, Part] | None = None) -> dict[str, Use]:
    """The use of every parameter that a run reads, in the order of first use.

    Args:
        parts: parts of parameters, by name.
    """
    readers = program.readers()
    found: list[tuple[int, str, Use]] = []
    for name, part in (_whole_parameters(program) | dict(parts or {})).items():
        if readers.get(part.number):
            first, use = _first_use(program, readers, part)
            found.append((first, name, use))
    # Of what one operation reads, the bias comes last, as where it is added by another.
    found.sort(key=lambda each: (each[0], each[2].role == "bias", each[1]))
    return {name: use for _, name, use in found}


def _whole_parameters(program: Program) -> dict[str, Part]:
    shapes = {v.number: v.array.shape for v in program.values}
    return {
        name: Part(number, np.arange(prod(shapes[number])).reshape(shapes[number]), shapes[number])
        for name, number in program.named("parameter").items()
    }


def _first_use(
    program: Program, readers: Mapping[int, Sequence[Operation]], part: Part
) -> tuple[int, Use]:
    """The number of the operation that first computes with a value, and the use."""
    number, places = part.number, part.places.astype(np.float64)
    operation = readers[number][0]
    while operation.name in LAYOUTS and len(operation.inputs) == 1:
        following = operation.outputs[0]
        if not readers.get(following):
            break
        places = run_on_places(program, operation, places)[0]
        number, operation = following, readers[following][0]
    operand = operation.inputs.index(number)
    role = _role(operation, operand)
    split = _operand_axes(operation, operand, places.ndim)
    size = prod(part.shape)
    if split is None or len(np.unique(places)) != places.size or places.size != size:
        return operation.number, Use(role=role)
    batch, summed, others = split
    ordered = places.transpose(*batch, *summed, *others)
    original = np.arange(size, dtype=np.float64).reshape(part.shape)
    axes = next(matching_layouts(original, ordered, 0.0), ())
    count = prod(places.shape[axis] for axis in summed)
    return operation.number, Use(axes, count, len(batch), role)


def run_on_places(program: Program, operation: Operation, places: np.ndarray) -> list[np.ndarray]:
    """What an operation that only moves numbers makes of the places that they come from."""
    like = program.arrays[operation.inputs[0]]
    wide = like.astype("float64") if program.framework == "jax" else like.double()
    others = [program.arrays[n] for n in operation.inputs[1:]]
    computed = operation.run([program.to_framework(places, wide), *others])
    return [np.asarray(program.to_numpy(array)) for array in computed]


def _role(operation: Operation, operand: int) -> str:
    name = operation.name.removeprefix("aten.").partition(".")[0]
    if name in ("addmm", "baddbmm", "native_layer_norm", "convolution"):
        named = {"addmm": "b", "baddbmm": "b", "native_layer_norm": "-sb", "convolution": "-mb"}
        letters = named[name]
        letter = letters[operand] if operand < len(letters) else "m"
        return {"b": "bias", "s": "scale", "m": "matrix"}.get(letter, "")
    return next((role for role, names in _ROLES.items() if name in names), "")


_ROLES = {
    "matrix": ("mm", "bmm", "dot_general", "conv_general_dilated"),
    "table": ("embedding", "index_select", "index", "gather"),
    "scale": ("mul", "div"),
    "bias": ("add", "sub", "add_any"),
}


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
