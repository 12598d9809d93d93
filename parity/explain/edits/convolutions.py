"""Convolutions and poolings: how images are padded, and which way a kernel lies."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from parity.explain.edits.edit import Proposal, with_input
from parity.explain.edits.search import Search
from parity.explain.edits.words import spoken, stem
from parity.programs.program import Operation, Run

_KINDS = ("convolution", "conv_general_dilated", "avg_pool2d", "max_pool2d_with_indices")
_MODES = {
    "constant": "zeros",
    "reflect": "the reflected image",
    "replicate": "the border repeated",
    "circular": "the opposite side",
}


def other_convolutions(search: Search) -> Iterator[Proposal]:
    for operation in search.window:
        if stem(operation) in ("convolution", "conv_general_dilated"):
            yield from _flipped(search, operation)
        if stem(operation) in _KINDS and isinstance(operation.attributes.get("padding"), list):
            yield from _padded(search, operation)


def _flipped(search: Search, operation: Operation) -> Iterator[Proposal]:
    kernel = search.array(operation.inputs[1])
    name = search.program.values[operation.inputs[1]].name or "kernel"
    space = tuple(i for i in range(kernel.ndim) if i >= 2)
    if stem(operation) == "conv_general_dilated":
        space = tuple(operation.attributes["dimension_numbers"].rhs_spec[2:])
    flipped = with_input(search.program, operation, 1, lambda k: torch.flip(k, space))
    yield Proposal(
        [flipped],
        f"{name} as it lies",
        f"{name} flipped in space",
        None,
        "flip the kernel in space (transpose_kernel=True, or reverse its spatial axes)",
    )


def _padded(search: Search, operation: Operation) -> Iterator[Proposal]:
    """Other numbers of pixels before and after, and other pixels than zeros."""
    own = list(operation.attributes["padding"])
    bare = operation.edited(padding=[0] * len(own))
    kernel = search.array(operation.inputs[1]).shape[2:] if len(operation.inputs) > 1 else own
    most = max(*kernel, *own, 1)
    for mode, (low, high) in product(_MODES, product(range(most + 1), repeat=2)):
        if mode != "constant" and (low == high == 0):
            continue

        def pad(x: Tensor, mode: str = mode, low: int = low, high: int = high) -> Tensor:
            return F.pad(x, [low, high] * len(own), mode)

        edited = _on_larger(bare, pad)
        what = spoken(operation)
        base = f"{what} padded by {_pairs(own, own)}"
        target = f"{what} padded by {_pairs([low] * len(own), [high] * len(own))}"
        if mode != "constant":
            target += f" of {_MODES[mode]}"
        yield Proposal([edited], base, target)


def _on_larger(operation: Operation, pad: Callable[[Tensor], Tensor]) -> Operation:
    """The operation on a padded image, a tensor."""

    def wrap(run: Run) -> Run:
        return lambda arrays: run([pad(arrays[0]), *arrays[1:]])

    return replace(operation, make_run=lambda changes: wrap(operation.make_run(changes)))


def _pairs(low: Sequence[int], high: Sequence[int]) -> str:
    return ", ".join(f"({a}, {b})" for a, b in zip(low, high, strict=True))
