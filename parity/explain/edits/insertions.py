"""A layer that the target alone applies, between a value and the operation that reads it."""

from collections.abc import Iterator

import numpy as np

from parity.align.layouts import lay_out
from parity.explain.edits.edit import Proposal, constant, with_input
from parity.explain.edits.functions import identify_activation, identify_norm_of
from parity.explain.edits.operands import value_text
from parity.explain.edits.search import FEWEST_NUMBERS, Search
from parity.explain.edits.words import spoken, stem
from parity.programs.program import Operation

_MOST_LINES = 3


def inserted_layers(search: Search) -> Iterator[Proposal]:
    """A value of the base that only the target changes before the same operation reads it."""
    for operation in search.window:
        for index, n in enumerate(operation.inputs):
            if not _may_be_changed(search, n):
                continue
            for m, array in _changed_by_target(search, n):
                block = _block(search, n, m)
                if not block:
                    continue
                layer = _identify(search, n, block)
                if layer is None:
                    continue
                texts = _layer_texts(search, n, operation, layer, block)
                edited = with_input(search.program, operation, index, constant(array))
                yield Proposal([edited], *texts)


def _may_be_changed(search: Search, n: int) -> bool:
    held = search.array(n)
    is_computed = search.program.values[n].kind in ("computed", "input")
    return is_computed and held.dtype.kind == "f" and held.size >= FEWEST_NUMBERS


def _changed_by_target(search: Search, n: int) -> Iterator[tuple[int, np.ndarray]]:
    """What the target computes of its own, laid out as this value is beside the target's."""
    shape = search.array(n).shape
    for operation in search.target_window:
        for m in operation.outputs:
            held = search.target.values[m].array
            if m == search.pair.target or held.dtype.kind != "f":
                continue
            for theirs, axes in search.alignment.matches.get(n, ()):
                if search.target.values[theirs].array.shape == held.shape:
                    yield m, lay_out(held, axes, shape)


def _block(search: Search, n: int, m: int) -> list[Operation]:
    """The target's operations from its counterpart of the base's value n to its value m.

    Empty where other values that inputs enter come in between.
    """
    starts = {theirs for theirs, _ in search.alignment.matches.get(n, ())}
    wanted, block = {m}, []
    reached = False
    for operation in reversed(search.target_window):
        if not any(o in wanted for o in operation.outputs):
            continue
        block.append(operation)
        for number in operation.inputs:
            reached |= number in starts
            if number not in starts:
                wanted.add(number)
    computed = {o for operation in block for o in operation.outputs}
    read = {number for operation in block for number in operation.inputs}
    strangers = (read & search.target_fed) - computed - starts
    return block[::-1] if reached and not strangers else []


def _layer_texts(
    search: Search, n: int, operation: Operation, layer: str, block: list[Operation]
) -> tuple[str, str]:
    what, read = spoken(operation), value_text(search, n)
    lines = dict.fromkeys(str(op.source) for op in block if op.source.line)
    where = f" ({', '.join(list(lines)[:_MOST_LINES])})" if lines else ""
    return f"{what} of {read} as it is", f"{what} of {read} after {layer}{where}"


def _identify(search: Search, n: int, block: list[Operation]) -> str | None:
    """The first value of the block that is a known function of what goes in."""
    fused = [spoken(op) for op in block if "norm" in stem(op)]
    if fused:
        return fused[0]
    outputs = {m for operation in block for m in operation.outputs}
    for y in (y for m, y in _changed_by_target(search, n) if m in outputs):
        activation = identify_activation(search.array(n), y, search.tolerance)
        if activation is not None:
            return activation
        norm = identify_norm_of(search.array(n), y, search.tolerance)
        if norm is not None:
            return "layer norm" if norm.centered else "RMS norm"
    return None
