"""Which function of one or two read values a value is: activations and their gates."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import permutations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu by the error function": F.gelu,
    "gelu by its tanh approximation": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
}


def different_activation(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    ours = _identify_activation(value.reference, value.read)
    theirs = _identify_activation(value.candidate, value.read) if ours else None
    if ours and theirs and ours[0] != theirs[0]:
        yield Cause(f"{theirs[0]}, where the reference has {ours[0]}", f"use {ours[0]}", theirs[1])


def _identify_activation(
    wanted: np.ndarray, read: Mapping[str, np.ndarray]
) -> tuple[str, float] | None:
    """(formula, residual) of the first form that gives `wanted`."""
    usable = {n: a for n, a in read.items() if a.shape == wanted.shape and a.dtype.kind == "f"}
    for text, predicted in _forms(usable):
        if explains(predicted, wanted):
            return text, deviation(predicted, wanted)
    return None


def _forms(read: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for shown, function in ACTIVATIONS.items():
        applied = {n: function(torch.tensor(a)).numpy() for n, a in read.items()}
        for n, array in applied.items():
            yield f"{shown}({n})", array
        for a, b in permutations(read, 2):
            yield f"{shown}({a}) * {b}", applied[a] * read[b]
            if a < b:
                product = function(torch.tensor(read[a] * read[b])).numpy()
                yield f"{shown}({a} * {b})", product
    for a, b in permutations(read, 2):
        if a < b:
            yield f"{a} * {b}, no activation", read[a] * read[b]
