"""Both twins' errors in low precision, component by component, against their float64 truth.

`parity.judge.precision` says how large they may be.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from parity.judge.errors import differences
from parity.judge.precision import (
    DTYPES,
    Roundings,
    rounding_floor,
    unit_roundoff,
    within_tolerance,
)


class Twins(Protocol):
    """A Flax computation and its torch twin on the same numbers, held in one dtype.

    Each run gives outputs as `output.*` and gradients as `parameter.*` and `input.*`; `run_truth`
    gives what the same numbers lead to in float64.
    """

    def run_flax(self) -> Mapping[str, np.ndarray]: ...
    def run_torch(self) -> Mapping[str, np.ndarray]: ...
    def run_truth(self) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class ErrorPair:
    """Both frameworks' error in one value, and what the theory adds to twice the other's."""

    name: str
    flax: float
    torch: float
    floor: float

    @property
    def within_tolerance(self) -> bool:
        flax_is = within_tolerance(self.flax, self.torch, self.floor)
        return flax_is and within_tolerance(self.torch, self.flax, self.floor)


@dataclass(frozen=True)
class Component:
    """What is measured.

    Args:
        build: the twins in a dtype.
        forward: the roundings of its outputs.
        tokens: how many tokens a parameter's gradient sums over.
    """

    build: Callable[[str], Twins]
    forward: Roundings
    tokens: int

    def roundings(self, name: str) -> Roundings:
        """Those of an output, of an input's gradient or of a parameter's."""
        if name.startswith("output."):
            return self.forward
        return self.forward * 3 + Roundings(self.tokens * name.startswith("parameter."))


def measure_errors(component: Component, dtype: str) -> list[ErrorPair]:
    """The norm-wise error of every value against the truth, in both frameworks.

    Raises:
        TypeError: the frameworks give a value in different types, or a gradient in another than
            the dtype.
        FloatingPointError: a side overflowed.
    """
    twins = component.build(dtype)
    ours, theirs, truth = twins.run_flax(), twins.run_torch(), twins.run_truth()
    for name, value in ours.items():
        found = (str(value.dtype), str(theirs[name].dtype))
        expected = found[0] if name.startswith("output.") else dtype
        if found != (expected, expected):
            raise TypeError(f"{name}: flax gives {found[0]}, torch {found[1]}, not {expected}")
    pairs = zip(differences(ours, truth), differences(theirs, truth), strict=True)
    return [
        ErrorPair(a.name, a.error, b.error, rounding_floor(dtype, component.roundings(a.name)))
        for a, b in pairs
    ]


@dataclass(frozen=True)
class Entry:
    """The worst (flax, torch, floor) of a component's outputs and gradients, in units of u."""

    component: str
    dtype: str
    output: tuple[float, ...]
    gradient: tuple[float, ...]


def table(components: Mapping[str, Component], dtypes: Iterable[str] = DTYPES) -> list[Entry]:
    """The worst output and gradient of every component in every dtype, in both frameworks."""

    def worst(rows: list[ErrorPair], dtype: str) -> tuple[float, ...]:
        columns = zip(*((row.flax, row.torch, row.floor) for row in rows), strict=True)
        return tuple(max(column) / unit_roundoff(dtype) for column in columns)

    def entry(name: str, dtype: str) -> Entry:
        rows = measure_errors(components[name], dtype)
        outputs = [row for row in rows if row.name.startswith("output.")]
        gradients = [row for row in rows if not row.name.startswith("output.")]
        return Entry(name, dtype, worst(outputs, dtype), worst(gradients, dtype))

    return [entry(name, dtype) for name in components for dtype in dtypes]


def markdown(entries: Iterable[Entry]) -> str:
    """The table, errors and floors in units of the dtype's u."""
    head = "| component | dtype | output: flax | torch | floor | gradients: flax | torch | floor |"
    lines = (
        f"| {e.component} | {e.dtype} | "
        + " | ".join(f"{value:.2f}" for value in e.output + e.gradient)
        + " |"
        for e in entries
    )
    return "\n".join([head, "|---" * 8 + "|", *lines])
