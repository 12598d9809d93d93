"""What an operation reads: left out, exchanged, another value; and what only the target applies."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity.explain.edits.attributes import solutions
from parity.explain.edits.edit import Proposal, computing, reading, with_input, with_output
from parity.explain.edits.functions import ACTIVATIONS, Norm
from parity.explain.edits.search import Block, Search
from parity.explain.edits.tables import holds_rotation
from parity.explain.edits.words import number, spoken, stem
from parity.programs.program import Operation, Run

_LOW = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def bypasses(search: Search) -> Iterator[Proposal]:
    """A part of the base left out, or a parameter that is not added or multiplied."""
    for blocks in search.alike():
        operations = [
            computing(search.program, block.end, [block.start], lambda a: a) for block in blocks
        ]
        base = _block_text(search, blocks[0])
        yield Proposal(operations, base, f"no {base}", f"leave out the {base}", f"add the {base}")
    for operations in search.groups():
        for index, n in enumerate(operations[0].inputs):
            value = search.program.values[n]
            if value.kind != "parameter" or value.array.ndim != 1:
                continue
            what = value.name or f"the parameter of {spoken(operations[0])}"
            for fill, word in ((0.0, "added"), (1.0, "multiplied")):
                edited = [
                    with_input(
                        search.program, op, index, lambda a, fill=fill: torch.full_like(a, fill)
                    )
                    for op in operations
                    if index < len(op.inputs)
                ]
                yield Proposal(edited, f"{what} is {word}", f"{what} is not {word}")


def _block_text(search: Search, block: Block) -> str:
    inside = [op for op in search.window if op.number in _numbers_of(search, block)]
    if holds_rotation(search, inside):
        return "rotary embedding"
    if len(inside) == 1:
        operation = inside[0]
        numbers = [n for n in operation.inputs if n != block.start]
        others = [search.program.values[n] for n in numbers]
        names = [value.name for value in others if value.name]
        scalars = [v for v in operation.attributes.values() if isinstance(v, float)]
        scalars += [float(v.array.ravel()[0]) for v in others if v.array.size == 1]
        with_what = names or [number(value, search.sizes) for value in scalars]
        with_what += [value_text(search, n) for n in numbers]
        verb = {"mul": "multiplication by", "div": "division by", "add": "addition of"}
        if stem(operation) in verb and with_what:
            return f"{verb[stem(operation)]} {with_what[0]}"
        return spoken(operation)
    named = [spoken(op) for op in inside if stem(op) not in _SILENT]
    return f"computation of {inside[-1].source} ({', '.join(dict.fromkeys(named[:4]))})"


_SILENT = frozenset(("view", "_unsafe_view", "expand", "clone", "reshape", "broadcast_in_dim"))


def _numbers_of(search: Search, block: Block) -> set[int]:
    """The operations between the start and the end of a block."""
    reached, inside = {block.start}, set()
    for operation in search.window:
        if any(n in reached for n in operation.inputs) and operation.number <= block.end.number:
            reached.update(operation.outputs)
            inside.add(operation.number)
    wanted, kept = set(block.end.outputs), set()
    for operation in reversed(search.window):
        if operation.number in inside and any(n in wanted for n in operation.outputs):
            kept.add(operation.number)
            wanted.update(operation.inputs)
    return kept


def other_operands(search: Search) -> Iterator[Proposal]:
    yield from _replaced(search)
    yield from _replaced_together(search)
    yield from _exchanged(search)
    yield from _reversed(search)
    yield from _related(search)
    yield from _neighbours_swapped(search)
    yield from _bias_moved(search)


def _replaced(search: Search) -> Iterator[Proposal]:
    """Another matched value, which the target reads and the base does not."""
    for operations in search.groups():
        for n in dict.fromkeys(n for op in operations for n in op.inputs):
            for other in search.matched_leaves:
                shapes = search.array(n).shape, search.array(other).shape
                if other == n or shapes[0] != shapes[1] or other > operations[0].outputs[0]:
                    continue
                base, target = (value_text(search, v) for v in (n, other))
                what = spoken(operations[0])
                yield Proposal(
                    [reading(op, {n: other}) for op in operations],
                    f"{what} of {base}",
                    f"{what} of {target} in its place",
                )


def _replaced_together(search: Search) -> Iterator[Proposal]:
    """The parameters of one layer in the place of another's."""
    values = search.program.values
    for operations in search.groups():
        first = operations[0]
        own = [n for n in dict.fromkeys(first.inputs) if values[n].kind == "parameter"]
        if len(own) != 2:
            continue
        others = [
            [
                m
                for m in search.matched_leaves
                if values[m].kind == "parameter" and m not in own and _same_shape(search, m, n)
            ]
            for n in own
        ]
        for chosen in product(*others):
            if len(set(chosen)) == len(own):
                exchanged = dict(zip(own, chosen, strict=True))
                names = [" and ".join(values[n].name for n in side) for side in (own, chosen)]
                texts = [f"{spoken(first)} of the parameters {both}" for both in names]
                edited = [reading(op, exchanged) for op in operations]
                yield Proposal(edited, texts[0], texts[1])


def _same_shape(search: Search, a: int, b: int) -> bool:
    return search.array(a).shape == search.array(b).shape


def value_text(search: Search, n: int) -> str:
    """A value by its name, or by the code that made it."""
    value, producer = search.program.values[n], search.program.producer(n)
    if value.name:
        return f"the {value.kind} {value.name}"
    if producer is None:
        return "a constant"
    module = producer.source.module
    if len(producer.outputs) > 1 and stem(producer).startswith(("split", "chunk", "unbind")):
        return f"part {producer.outputs.index(n)} of the {spoken(producer)} ({producer.source})"
    made = f"the output of {module}" if module else f"the {spoken(producer)}"
    return f"{made} ({producer.source})"


def _exchanged(search: Search) -> Iterator[Proposal]:
    """Two values that have each other's roles."""
    numbers = [n for n in (*search.leaves, *sorted(search.computed)) if n not in search.static]
    for a, b in combinations(numbers, 2):
        if search.array(a).shape != search.array(b).shape or search.array(a).ndim == 0:
            continue
        edited = [
            reading(op, {a: b, b: a})
            for op in search.window
            if (a in op.inputs or b in op.inputs) and op.outputs[0] not in (a, b)
        ]
        if not edited or b in search.descendants(a) or a in search.descendants(b):
            continue
        names = [spoken(op) for op in edited]
        base, target = (value_text(search, v) for v in (a, b))
        yield Proposal(
            edited,
            f"{names[0]} of {base}",
            f"{names[0]} of {target}, the two exchanged",
            None,
            f"exchange {base} and {target}",
        )


def _reversed(search: Search) -> Iterator[Proposal]:
    for operations in search.groups():
        first = operations[0]
        if len(first.inputs) == 2 and stem(first) in (
            "sub",
            "div",
            "pow",
            "rsub",
            "mm",
            "bmm",
            "cat",
        ):
            edited = [replace(op, inputs=op.inputs[::-1]) for op in operations]
            yield Proposal(
                edited, f"{spoken(first)} a, b", f"{spoken(first)} b, a: operands swapped"
            )


_BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
_BINARY |= {"maximum": torch.maximum, "minimum": torch.minimum}
_BINARY_NAMES = {"add": "sum", "sub": "difference", "mul": "product", "div": "quotient"}


def _related(search: Search) -> Iterator[Proposal]:
    """A sum in the place of a difference, a product of a quotient, and so on."""
    for operations in search.groups():
        kind = stem(operations[0])
        if kind not in _BINARY or any(len(op.inputs) != 2 for op in operations):
            continue
        for other, function in _BINARY.items():
            if other != kind:
                edited = [computing(search.program, op, op.inputs, function) for op in operations]
                base, target = (_BINARY_NAMES.get(name, name) for name in (kind, other))
                yield Proposal(edited, f"the {base} of a and b", f"the {target} of a and b")


def _neighbours_swapped(search: Search) -> Iterator[Proposal]:
    """A, then B, in the place of B, then A."""
    producers = {n: op for op in search.window for n in op.outputs[:1]}
    for later in search.window:
        for place, n in enumerate(later.inputs):
            earlier = producers.get(n)
            if earlier is None:
                continue
            for start, x in enumerate(earlier.inputs):
                shapes = {search.array(v).shape for v in (x, n, later.outputs[0])}
                if len(shapes) == 1 and x not in search.static:
                    first, second = spoken(earlier), spoken(later)
                    base, target = f"{first} before {second}", f"{first} after {second}"
                    yield Proposal([_swapped(later, place, earlier, start)], base, target)


def _swapped(later: Operation, place: int, earlier: Operation, start: int) -> Operation:
    inputs = list(later.inputs)
    inputs[place] = earlier.inputs[start]
    count = len(inputs)

    def make_run(changes: Any) -> Run:
        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            between = later.make_run(changes)(arrays[:count])[0]
            rest = list(arrays[count:])
            rest[start] = between
            return earlier.make_run({})(rest)[:1]

        return run

    return replace(
        later, inputs=(*inputs, *earlier.inputs), outputs=later.outputs[:1], make_run=make_run
    )


def _bias_moved(search: Search) -> Iterator[Proposal]:
    """A bias that enters a linear layer is added to something later."""
    for operation in search.window:
        for index, n in enumerate(operation.inputs):
            value = search.program.values[n]
            if value.kind != "parameter" or value.array.ndim != 1:
                continue
            bare = with_input(search.program, operation, index, torch.zeros_like)
            for later in search.window:
                held = search.array(later.outputs[0])
                if later.number > operation.number and held.shape[-1:] == value.array.shape:
                    moved = with_output(search.program, later, torch.add, [n])
                    what = value.name or "the bias"
                    base, target = (
                        f"{what} added before {spoken(later)}",
                        f"{what} added after {spoken(later)}",
                    )
                    yield Proposal([bare, moved], base, target)


def repetitions(search: Search) -> Iterator[Proposal]:
    """An operation applied once more to what it gives."""
    for operations in search.groups():
        first = operations[0]
        for index, n in enumerate(first.inputs):
            if (
                search.array(n).shape == search.array(first.outputs[0]).shape
                and n not in search.static
            ):
                edited = [_twice(op, index) for op in operations if index < len(op.inputs)]
                yield Proposal(edited, f"{spoken(first)} once", f"{spoken(first)} twice")


def _twice(operation: Operation, index: int) -> Operation:
    def make_run(changes: Any) -> Run:
        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            once = operation.make_run(changes)(arrays)
            return operation.make_run(changes)([*arrays[:index], once[0], *arrays[index + 1 :]])

        return run

    return replace(operation, make_run=make_run)


def additions(search: Search) -> Iterator[Proposal]:
    """Something that only the target applies, to a value of the window or to what it reads."""
    for place in _places(search):
        n, change = place
        held = search.array(n)
        where = value_text(search, n)
        for function, extra, text in _extras(search, held):
            yield Proposal(change(function, extra), f"no {text}", f"{text} on {where}")
        for form, function in (("multiplied by {}", torch.mul), ("plus {}", torch.add)):

            def edited(c: float, function: Any = function, change: Any = change) -> list[Operation]:
                return change(lambda a, c=c: function(a, c), ())

            for c in solutions(search, edited, 1.0 if function is torch.mul else 0.0):
                text = form.format(number(c, search.sizes))
                yield Proposal(edited(c), f"{where} as it is", f"{where} {text}")


Change = Callable[[Callable[..., Tensor], Sequence[int]], list[Operation]]


def _places(search: Search) -> Iterator[tuple[int, Change]]:
    """Values with a way to change them where the window reads or computes them."""
    for operation in search.window:
        n = operation.outputs[0]
        if search.array(n).dtype.kind == "f" and n not in search.static:
            yield (
                n,
                lambda function, extra, operation=operation: [
                    with_output(search.program, operation, function, extra)
                ],
            )
    for operation in search.window:
        for index, n in enumerate(operation.inputs):
            if n in search.leaves and n not in search.static and search.array(n).dtype.kind == "f":
                yield (
                    n,
                    lambda function, extra, operation=operation, index=index: (
                        [with_input(search.program, operation, index, function)]
                        if not extra
                        else []
                    ),
                )


def _extras(
    search: Search, held: np.ndarray
) -> Iterator[tuple[Callable[..., Tensor], Sequence[int], str]]:
    for name, function in ACTIVATIONS.items():
        yield function, (), name
    for n in search.matched_leaves:
        value = search.program.values[n]
        if n in search.leaves and value.kind != "parameter":
            continue
        name = value.name or value_text(search, n)
        for axis in _axes_of(value.array.shape, held.shape):
            shape = [-1 if i == axis else 1 for i in range(held.ndim)] if axis is not None else None
            for word, function in (
                ("plus", torch.add),
                ("times", torch.mul),
                ("minus", torch.sub),
            ):
                yield (
                    lambda a, b, function=function, shape=shape: function(
                        a, b if shape is None else b.reshape(shape)
                    ),
                    (n,),
                    f"{word} {name}",
                )
    for low, dtype in _LOW.items():
        yield (
            lambda a, dtype=dtype: a.to(dtype).to(a.dtype),
            (),
            f"rounding to {low}",
        )
    for c in search.target_numbers:
        if c > 0 and np.isfinite(c):
            yield lambda a, c=c: c * torch.tanh(a / c), (), f"soft cap {c:g} * tanh(x / {c:g})"
            yield lambda a, c=c: a.clamp(-c, c), (), f"clipping to {c:g}"
            yield lambda a, c=c: a.clamp(max=c), (), f"clipping from above at {c:g}"
            yield lambda a, c=c: a.clamp(min=c), (), f"clipping from below at {c:g}"
        if 0 < c < 0.01 and held.ndim > 1:
            last = held.ndim
            for centered, name in ((True, "layer norm"), (False, "RMS norm")):
                yield Norm((last - 1, last), 1, centered, True, False, c), (), name


def _axes_of(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[int | None]:
    """The axes that a vector may lie along; None: it has the shape already."""
    if shape == wanted:
        yield None
    elif len(shape) == 1:
        yield from (i for i in reversed(range(len(wanted))) if wanted[i] == shape[0])
