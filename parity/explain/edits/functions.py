"""A function in the place of its relative: activations, softmaxes, norms, poolings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from parity.align.layouts import same
from parity.explain.edits.edit import Proposal, computing
from parity.explain.edits.search import Block, Search
from parity.explain.edits.words import axes_text, spoken, stem
from parity.programs.program import Operation

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu by erf": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick gelu, x * sigmoid(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky relu of slope 0.01": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "log sigmoid": F.logsigmoid,
    "hard swish": F.hardswish,
    "hard sigmoid": F.hardsigmoid,
    "hard tanh": F.hardtanh,
    "mish": F.mish,
    "relu squared": lambda x: torch.relu(x).square(),
    "square": torch.square,
    "absolute value": torch.abs,
    "exp": torch.exp,
    "sine": torch.sin,
    "cosine": torch.cos,
    "tanh(x) - x, tanh shrink": F.tanhshrink,
}
IDENTITY = "no activation"


def _of_numpy(function: Callable[[Tensor], Tensor], x: np.ndarray) -> np.ndarray:
    return function(torch.from_numpy(np.array(x, np.float64))).numpy()


def other_functions(search: Search) -> Iterator[Proposal]:
    for blocks in search.alike():
        x, y = search.array(blocks[0].start), search.array(blocks[0].end.outputs[0])
        x, y = x.astype(np.float64), y.astype(np.float64)
        if not (np.isfinite(x).all() or np.isneginf(x).any()):
            continue
        named = _attention_axes if search.are_scores(blocks[0].start) else axes_text
        for relatives in (
            _activations(x, y, search.tolerance),
            _softmaxes(x, y, search.tolerance, named),
            _norms(x, y, search.tolerance),
        ):
            for base, target, function in relatives:
                operations = [_through(search, block, function) for block in blocks]
                yield Proposal(operations, base, target)


def other_layers(search: Search) -> Iterator[Proposal]:
    """Relatives of what a framework computes in one operation, and of reductions."""
    for operations in search.groups():
        first = operations[0]
        if stem(first) == "native_layer_norm" and len(first.inputs) == 3:
            x, y = (search.array(n) for n in (first.inputs[0], first.outputs[0]))
            weight, bias = (search.array(n) for n in first.inputs[1:])
            ours = identify_norm_of(x, (y - bias) / weight, _LOOSE)
            if ours is None:
                continue
            for other in _related(ours, x.shape):

                def scaled(a: Tensor, w: Tensor, b: Tensor, other: Norm = other) -> Tensor:
                    return other(a) * w + b

                edited = [computing(search.program, op, op.inputs, scaled) for op in operations]
                yield Proposal(edited, *_different(ours, other, x.shape))
        elif stem(first) in _POOLINGS:
            sizes = [first.attributes.get(n) for n in ("kernel_size", "stride", "padding")]
            window, stride, padding = (size or None for size in sizes)
            for name, pool in _POOLINGS.items():

                def pooled(a: Tensor, pool=pool, w=window, s=stride, p=padding or 0) -> Tensor:
                    return pool(a, w, s, p)

                if name != stem(first):
                    edited = [
                        computing(search.program, op, op.inputs[:1], pooled) for op in operations
                    ]
                    yield Proposal(edited, spoken(first), spoken(first, name))


_POOLINGS = {"avg_pool2d": F.avg_pool2d, "max_pool2d_with_indices": F.max_pool2d}
# Undoing a weight costs a few digits.
_LOOSE = 1e-9

_REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "mean": lambda x, axis: x.mean(axis),
    "sum": lambda x, axis: x.sum(axis),
    "maximum": lambda x, axis: x.amax(axis),
    "minimum": lambda x, axis: x.amin(axis),
    "first entry": lambda x, axis: x.select(axis, 0),
    "last entry": lambda x, axis: x.select(axis, -1),
    "root of the sum of squares": lambda x, axis: x.square().sum(axis).sqrt(),
    "product": lambda x, axis: x.prod(axis),
}


def other_reductions(search: Search) -> Iterator[Proposal]:
    """Along one axis: a mean, a sum, an extremum, an entry."""
    for end in search.window:
        y = search.array(end.outputs[0])
        before = {n for op in search.window if op.number <= end.number for n in op.inputs}
        for n in sorted(before - search.static, reverse=True):
            x = search.array(n)
            if x.dtype.kind != "f" or y.dtype.kind != "f" or x.ndim == 0 or x.size <= y.size:
                continue
            for axis in range(x.ndim):
                short = (*x.shape[:axis], *x.shape[axis + 1 :])
                if y.shape not in (short, (*x.shape[:axis], 1, *x.shape[axis + 1 :])):
                    continue
                named = {
                    name: _of_numpy(lambda a, f=f, axis=axis: f(a, axis), x).reshape(y.shape)
                    for name, f in _REDUCTIONS.items()
                }
                ours = next((k for k, v in named.items() if same(v, y, search.tolerance)), None)
                over = axes_text(axis, x.shape)
                base = f"{ours} over {over}" if ours else f"pooling by `{end.source.code}`"
                for name, function in _REDUCTIONS.items():
                    if name != ours:
                        edited = computing(
                            search.program, end, [n], lambda a, f=function, axis=axis: f(a, axis)
                        )
                        yield Proposal([edited], base, f"{name} over {over}")


def _through(search: Search, block: Block, function: Callable[[Tensor], Tensor]) -> Operation:
    return computing(search.program, block.end, [block.start], function)


Relative = tuple[str, str, Callable[[Tensor], Tensor]]


def _activations(x: np.ndarray, y: np.ndarray, tolerance: float) -> Iterator[Relative]:
    name = identify_activation(x, y, tolerance)
    if name is None:
        return
    for other, function in ACTIVATIONS.items():
        if other != name:
            yield name, other, function
    yield name, IDENTITY, lambda a: a


def identify_activation(x: np.ndarray, y: np.ndarray, tolerance: float) -> str | None:
    """The name of the function that y is of x, where it is one that is known."""
    if not np.isfinite(x).all():
        return None
    for name, function in ACTIVATIONS.items():
        if same(_of_numpy(function, x), y, tolerance):
            return name
    return None


def _softmax(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    e = torch.exp(x - x.amax(axes, keepdim=True))
    return e / e.sum(axes, keepdim=True)


def _attention_axes(axes: tuple[int, ...], shape: Sequence[int]) -> str:
    """Axes of scores [batch, heads, queries, keys]."""
    names = ["keys", "queries", "heads", "batch"]
    counted = [len(shape) - 1 - axis for axis in axes]
    if any(i >= len(names) for i in counted) or len(shape) < 4:
        return axes_text(axes, shape)
    shown = " and ".join(f"the {names[i]}" for i in counted)
    return f"{shown} (axis {', '.join(str(-1 - i) for i in counted)})"


def _softmaxes(
    x: np.ndarray,
    y: np.ndarray,
    tolerance: float,
    named: Callable[[tuple[int, ...], Sequence[int]], str],
) -> Iterator[Relative]:
    single = [(axis,) for axis in range(x.ndim)]
    ours = next(
        (a for a in single if same(_of_numpy(lambda t, a=a: _softmax(t, a), x), y, tolerance)), None
    )
    if ours is not None:
        base = f"softmax over {named(ours, x.shape)}"
        for axes in [*single, *combinations(range(x.ndim), 2)]:
            if axes != ours:
                text = f"softmax over {named(axes, x.shape)}"
                yield base, text, lambda a, axes=axes: _softmax(a, axes)
        yield base, "sigmoid", torch.sigmoid
        yield base, "log softmax", lambda a: _softmax(a, ours).log()
        yield base, "exponentials, not divided by their sum", torch.exp

        def plain(a: torch.Tensor) -> torch.Tensor:
            return a.exp() / (1 + a.exp().sum(ours, keepdim=True))

        yield base, "softmax with one added to the denominator", plain
        return
    ours = next(
        (
            a
            for a in single
            if same(_of_numpy(lambda t, a=a: _softmax(t, a).log(), x), y, tolerance)
        ),
        None,
    )
    if ours is not None:
        base = f"log softmax over {named(ours, x.shape)}"
        for axes in single:
            if axes != ours:
                text = f"log softmax over {named(axes, x.shape)}"
                yield base, text, lambda a, axes=axes: _softmax(a, axes).log()
        yield base, "softmax", lambda a: _softmax(a, ours)


@dataclass(frozen=True)
class Norm:
    """(x - [mean]) / sqrt(var + eps), over the last part of the last axis, or other axes.

    Args:
        axes: of x once its last axis is split in groups.
        groups: how many parts the last axis is split in.
        centered: the mean is taken away.
        inside: eps is inside the root; else it is added to the root.
        unbiased: the variance is divided by n - 1.
    """

    axes: tuple[int, ...]
    groups: int
    centered: bool
    inside: bool
    unbiased: bool
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        split = x.reshape(*x.shape[:-1], self.groups, -1)
        mean = split.mean(self.axes, keepdim=True) if self.centered else 0.0
        kept = split - mean
        n = prod(split.shape[axis] for axis in self.axes)
        var = kept.square().sum(self.axes, keepdim=True) / (n - 1 if self.unbiased else n)
        root = (var + self.eps).sqrt() if self.inside else var.sqrt() + self.eps
        return (kept / root).reshape(x.shape)


def _norms(x: np.ndarray, y: np.ndarray, tolerance: float) -> Iterator[Relative]:
    ours = identify_norm_of(x, y, tolerance)
    if ours is None:
        return
    for other in _related(ours, x.shape):
        yield (*_different(ours, other, x.shape), other)


def _different(ours: Norm, other: Norm, shape: tuple[int, ...]) -> tuple[str, str]:
    """What of the two norms differs, alone."""
    if ours.centered != other.centered:
        texts = {
            True: "layer norm: the mean is taken away",
            False: "RMS norm: no mean is taken away",
        }
        return texts[ours.centered], texts[other.centered]
    if ours.unbiased != other.unbiased:
        texts = {True: "variance over n - 1 (unbiased)", False: "variance over n"}
        return texts[ours.unbiased], texts[other.unbiased]
    if ours.inside != other.inside:
        texts = {True: "epsilon inside the root", False: "epsilon added to the root"}
        return texts[ours.inside], texts[other.inside]
    spread = "variance" if ours.centered else "mean of squares"
    base, target = (f"{spread} {_over(norm, shape)}" for norm in (ours, other))
    return base, target


def _over(norm: Norm, shape: tuple[int, ...]) -> str:
    last = len(shape)
    if norm.axes == (last - 1, last):
        return f"over all {shape[-1]} of the last axis"
    if norm.axes == (last,):
        return f"over {shape[-1] // norm.groups} each of the {norm.groups} parts of the last axis"
    return f"over {axes_text([a for a in norm.axes if a < last - 1] or [last - 1], shape)}"


def identify_norm_of(x: np.ndarray, y: np.ndarray, tolerance: float) -> Norm | None:
    """The norm over the last axis, or one of its parts, that y is of x."""
    if x.ndim < 2 or x.shape[-1] < 2 or not np.isfinite(x).all():
        return None
    last = x.ndim
    for groups in (1, *(n for n in range(2, x.shape[-1] // 2 + 1) if x.shape[-1] % n == 0)):
        axes = (last - 1, last) if groups == 1 else (last,)
        for centered in (True, False):
            split = x.reshape(*x.shape[:-1], groups, -1)
            kept = split - split.mean(axes, keepdims=True) if centered else split
            part = y.reshape(split.shape)
            root = (kept * kept).sum(axes) / (kept * part).sum(axes)
            if not same(kept / np.expand_dims(root, axes), part, tolerance):
                continue
            for unbiased in (False, True):
                n = prod(split.shape[a] for a in axes)
                var = np.square(kept).sum(axes) / (n - 1 if unbiased else n)
                for inside in (True, False):
                    rest = root**2 - var if inside else root - np.sqrt(var)
                    eps = float(np.median(rest))
                    scale = 1e-9 * float(np.abs(var).max() if inside else np.sqrt(var).max())
                    if eps > -scale and np.ptp(rest) <= max(scale, 1e-4 * abs(eps)):
                        return Norm(axes, groups, centered, inside, unbiased, max(eps, 0.0))
    return None


def _related(ours: Norm, shape: tuple[int, ...]) -> Iterator[Norm]:
    """Norms that differ in one thing."""
    yield replace(ours, centered=not ours.centered)
    yield replace(ours, unbiased=not ours.unbiased)
    if ours.eps:
        yield replace(ours, inside=not ours.inside)
    last = len(shape)
    for groups in range(1, shape[-1] // 2 + 1):
        if shape[-1] % groups == 0 and groups != ours.groups:
            axes = (last - 1, last) if groups == 1 else (last,)
            yield replace(ours, groups=groups, axes=axes)
    for axes in ((0,), (last - 2,), (0, last - 2), (last - 2, last - 1, last)):
        if (
            min(axes) >= 0
            and axes != ours.axes
            and prod(shape[a] for a in axes if a < last - 1) > 1
        ):
            yield replace(ours, axes=axes, groups=1)
