"""Another axis, flag, diagonal, size or type of an operation; or another number, solved for."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch

from parity.explain.edits.edit import Proposal, on_copies, with_input
from parity.explain.edits.search import Search
from parity.explain.edits.words import axes_text, number, spoken, stem
from parity.programs.program import Operation

_AXES = ("dim", "axis", "dims", "axes", "dimension", "concat_dimension")
_MOST_STEPS = 12
_REACH = 8
# A number and the value it was solved from agree to so many digits.
_SOLVED = 1e-12


def other_attributes(search: Search) -> Iterator[Proposal]:
    """One attribute of an operation that is no continuous number."""
    for operations in search.groups():
        first = operations[0]
        for name, value in first.attributes.items():
            alike = [op for op in operations if op.attributes.get(name) == value]
            for changes, base, target in _changes(search, first, name, value):
                edited = [op.edited(**changes) for op in alike]
                if isinstance(value, bool):
                    # Statistics are written where a flag says that a model is trained.
                    edited = [on_copies(op) for op in edited]
                yield Proposal(edited, base, target)


Change = tuple[Mapping[str, Any], str, str]


def _changes(search: Search, operation: Operation, name: str, value: Any) -> Iterator[Change]:
    shape = search.array(operation.inputs[0]).shape if operation.inputs else ()
    what = spoken(operation)
    if name in _AXES and shape:
        yield from _other_axes(what, name, value, shape)
    elif name == "training":
        texts = {True: "the batch's own statistics (training)", False: "running statistics"}
        yield {name: not value}, f"{what} by {texts[value]}", f"{what} by {texts[not value]}"
    elif isinstance(value, bool):
        yield {name: not value}, f"{what} with {name}={value}", f"{what} with {name}={not value}"
    elif name == "approximate":
        kinds = {"none": "gelu by erf", "tanh": "gelu by tanh"}
        other = "tanh" if value == "none" else "none"
        yield {name: other}, kinds[value], kinds[other]
    elif name == "correction" or name == "unbiased":
        texts = {True: "variance over n - 1", False: "variance over n"}
        yield {name: 0 if value else 1}, texts[bool(value)], texts[not value]
    elif name == "diagonal":
        for step in range(-_REACH, _REACH + 1):
            if step:
                yield (
                    {name: value + step},
                    f"{what} from diagonal {value}",
                    f"{what} from diagonal {value + step}",
                )
    elif name in ("start", "start_index") and isinstance(operation.attributes.get("end"), int):
        yield from _moved_slice(operation, shape)
    elif name in ("padding", "stride", "dilation", "kernel_size") and _is_sizes(value):
        for other in _other_sizes(value, name):
            yield (
                {name: other},
                f"{what} with {name} {_sizes(value)}",
                f"{what} with {name} {_sizes(other)}",
            )
    elif name == "padding" and value and _is_pairs(value):
        for other in _other_pairs(value):
            yield {name: other}, f"{what} padded by {value}", f"{what} padded by {other}"
    elif name in ("shifts", "step", "groups", "group", "y") and isinstance(value, int):
        for other in range(max(1, value - _REACH), value + _REACH + 1):
            if other != value:
                word = "power" if name == "y" else name
                yield {name: other}, f"{what} with {word} {value}", f"{what} with {word} {other}"


def _other_axes(what: str, name: str, value: Any, shape: Sequence[int]) -> Iterator[Change]:
    lone = isinstance(value, int)
    ours = {axis % len(shape) for axis in ([value] if lone else value or [])}
    if not ours:
        return
    counts = (1,) if lone else (1, 2, 3)
    for count in counts:
        for axes in combinations(range(len(shape)), count):
            if set(axes) == ours:
                continue
            other: Any = axes[0] if lone else type(value)(axes)
            base, target = (axes_text(sorted(a), shape) for a in (ours, axes))
            yield {name: other}, f"{what} over {base}", f"{what} over {target}"


def _moved_slice(operation: Operation, shape: Sequence[int]) -> Iterator[Change]:
    start, end = operation.attributes.get("start") or 0, operation.attributes["end"]
    length = shape[operation.attributes.get("dim", 0)]
    end = min(end, length)
    for step in range(-start, length - end + 1):
        if step:
            base, target = f"{start} to {end - 1}", f"{start + step} to {end + step - 1}"
            yield {"start": start + step, "end": end + step}, f"entries {base}", f"entries {target}"


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(n) is int for n in value) and bool(value)


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_sizes(n) and len(n) == 2 for n in value)


def _sizes(value: Sequence[int]) -> str:
    return " x ".join(map(str, value))


def _other_sizes(value: Sequence[int], name: str) -> Iterator[list[int]]:
    least = 0 if name == "padding" else 1
    for n in range(least, max(value) + 4):
        if any(n != old for old in value):
            yield [n] * len(value)


def _other_pairs(value: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    most = max(n for pair in value for n in pair) + 3
    for low in range(most):
        for high in range(most):
            if any((low, high) != tuple(pair) for pair in value):
                yield tuple((low, high) for _ in value)


def other_numbers(search: Search) -> Iterator[Proposal]:
    """One number of an operation, solved from the value that must be reproduced."""
    for operations in search.groups():
        first = operations[0]
        for name, value in _numbers(search, first):
            alike = [op for op in operations if dict(_numbers(search, op)).get(name) == value]

            def edited(other: float, name: Any = name, alike: Any = alike) -> list[Operation]:
                return [_with_number(search, op, name, other) for op in alike]

            for other in solutions(search, edited, value):
                base, target = _number_texts(search, first, name, value, other)
                yield Proposal(edited(other), base, target)


def _numbers(search: Search, operation: Operation) -> Iterator[tuple[str | int, float]]:
    """Numbers by the attribute's name, or by the place of the input that holds nothing else."""
    for name, value in operation.attributes.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _COUNTS:
            yield name, float(value)
    for index, n in enumerate(operation.inputs):
        held = search.array(n)
        if n in search.static and held.dtype.kind == "f" and held.size and n not in search.computed:
            first = float(held.ravel()[0])
            if (held == first).all():
                yield index, first


_COUNTS = frozenset(
    (
        *("dim", "dim0", "dim1", "axis", "start", "end", "step", "diagonal", "index", "size"),
        *("correction", "groups", "group", "N", "C", "HxW", "k", "num_classes", "dimension"),
        *("index_dtype", "momentum", "chunks", "split_size", "padding_idx", "reduction"),
    )
)


def _with_number(search: Search, operation: Operation, name: str | int, value: float) -> Operation:
    if isinstance(name, int):
        return with_input(search.program, operation, name, lambda a: torch.full_like(a, value))
    return operation.edited(**{name: value})


def solutions(search: Search, edited: Any, value: float) -> Iterator[float]:
    """Numbers that may do: those written in the target's window, then one solved for."""
    for other in search.target_numbers:
        for candidate in (other, 1 / other if other else 0.0, -other):
            if candidate != value:
                yield candidate
    starts = [value] if np.isfinite(value) else [0.0]
    for start in (*starts, 1.0):
        solved = _solve(search, edited, start)
        if solved is not None and solved != value:
            yield solved


def _solve(search: Search, edited: Any, start: float) -> float | None:
    """Gauss and Newton's steps with a secant's derivative."""

    def rest(x: float) -> np.ndarray | None:
        found = search.evaluate(edited(x))
        if found is None or found[0].shape != found[1].shape:
            return None
        gap = (found[0] - found[1]).ravel().astype(np.float64)
        return gap if np.isfinite(gap).all() else None

    x, step = start, max(abs(start) * 1e-3, 1e-7)
    before = rest(x)
    if before is None:
        return None
    for _ in range(_MOST_STEPS):
        after = rest(x + step)
        if after is None:
            return None
        slope = (after - before) / step
        length = float(slope @ slope)
        if length == 0 or not np.isfinite(length):
            return None
        x, last = x - float(slope @ before) / length, x
        if abs(x - last) <= _SOLVED * abs(x):
            return _rounded(x)
        moved = rest(x)
        if moved is None or (moved @ moved) > 1e6 * (before @ before):
            return None
        before, step = moved, max(abs(x - last) * 1e-3, abs(x) * 1e-9, 1e-15)
    return _rounded(x)


def _rounded(x: float) -> float:
    """The shortest decimal within what was solved to, where there is one."""
    short = float(f"{x:.6g}")
    return short if abs(short - x) <= 1e-7 * abs(x) else x


def _number_texts(
    search: Search, operation: Operation, name: str | int, value: float, other: float
) -> tuple[str, str]:
    kind = stem(operation)
    texts = [number(n, search.sizes) for n in (value, other)]
    match kind:
        case "mul":
            form = "multiplied by {}"
        case "div" | "true_divide":
            form = "divided by {}"
        case "pow" | "integer_pow":
            form = "power {}"
        case "masked_fill" | "select_n" | "where":
            form = "masked entries set to {}"
        case "clamp" | "clamp_min" | "clamp_max" | "max" | "min" | "maximum" | "minimum":
            form = "clipped at {}"
        case "leaky_relu":
            form = "leaky relu of slope {}"
        case "add" | "sub" if 0 < value < 0.01 and 0 <= other < 0.1:
            form = "epsilon {}"
        case "add":
            form = "{} added"
        case "sub" | "rsub":
            form = "{} in the difference"
        case _:
            form = "epsilon {}" if name == "eps" else f"{spoken(operation)} with {name} {{}}"
    if form == "multiplied by {}" and _is_scores(search, operation):
        form = "attention scores scaled by {}"
    if form == "divided by {}" and _is_scores(search, operation):
        form = "attention scores divided by {}"
    return form.format(texts[0]), form.format(texts[1])


def _is_scores(search: Search, operation: Operation) -> bool:
    """Whether a matrix product goes in and a softmax follows soon."""
    reached = set(operation.outputs)
    for later in search.state.operations[operation.number + 1 : operation.number + 12]:
        if any(n in reached for n in later.inputs):
            if "softmax" in later.name or later.name == "exp":
                return True
            reached.update(later.outputs)
    return False
