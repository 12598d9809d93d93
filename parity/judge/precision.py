"""Low precision: how far from the float64 truth a correct computation may be, and how far it is.

Both frameworks take the same numbers, held in float32, bfloat16 or float16; the truth takes them in
float64. Neither is right to the last digit, so each is held against the other: an error is in line
if it is at most twice the other's, plus a floor. Twice the other's: what the problem itself makes
of a rounding (a steep softmax, a cancelling sum) meets both alike. The floor is for what it need
not: a framework that keeps a chain in its accumulator rounds once where the other rounds each time.

One rounding. A number m 2**e with 1 <= m < 2 is off by at most u 2**e, with u = eps / 2, evenly
spread: u / sqrt(3) 2**e in root mean square. Leading digits of computed values spread evenly in log
m (Benford), so that E[m**2] = 3 / (2 ln 2), and an array is off norm-wise by

    STEP u,  STEP = sqrt(2 ln 2) / 3 = 0.39.

A chain of d roundings. Their errors are independent and of mean zero, a random walk: STEP u sqrt(d)
where the worst case is d u (Higham and Mary 2019, theorem 2.4: gamma_n = n u becomes
lambda sqrt(n) u, for sums of n terms and products of n factors). d is counted from the config
(`verification.twins.roundings`), along the longest path, in two kinds:

    rounded: results that are stored in the dtype, one per written operation, though a compiler may
        fuse them; a Python scalar, which jax rounds to the dtype first, is one more.
    wide: operations in float32 or wider: the terms of matrix products, the statistics of norms and
        softmaxes. They enter with the u of float32, with the dtype's own where that is smaller.

A library's exp, tanh or erf promises 4 ulp and is off by 1 typically, 2 u, what 4 roundings leave.

Gradients. An operation's derivative is a product of the gradient that arrives and of a factor that
takes about as many roundings as the operation, so the way back rounds twice as often as the way
there, on which its factors depend: 3 d. A parameter's gradient is a sum over all tokens too, and
both frameworks accumulate some of these sums in the dtype (jax those of biases, torch those of
LayerNorm, both those of embeddings): as many roundings more as there are tokens.

What the walk leaves out. ReLU's slope jumps at 0: if its input is off by a relative e, a share e/pi
of units takes the other slope (arcsine law of two normal variables at the angle e), and gradients
are off by sqrt(2 e / pi), 9 % for e = 3 u of bfloat16, whatever is computed how. What a router
chooses jumps where two experts tie. These are properties of the weights, not of a framework:
weights for this comparison keep ReLU's inputs off 0 and routers off ties.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
import numpy as np

from parity.judge.errors import differences

DTYPES = ("float32", "bfloat16", "float16")
STEP = float(np.sqrt(2 * np.log(2)) / 3)
LIBRARY = 4


@dataclass(frozen=True)
class Roundings:
    """Roundings along the longest path: results stored in the dtype, and wide operations."""

    rounded: int = 0
    wide: int = 0

    def __add__(self, other: "Roundings") -> "Roundings":
        return Roundings(self.rounded + other.rounded, self.wide + other.wide)

    def __mul__(self, times: int) -> "Roundings":
        return Roundings(self.rounded * times, self.wide * times)


def unit_roundoff(dtype: str) -> float:
    """u = eps / 2: 6e-8 for float32, 3.9e-3 for bfloat16, 4.9e-4 for float16."""
    return float(jnp.finfo(dtype).eps) / 2


def floor(dtype: str, roundings: Roundings) -> float:
    """STEP sqrt(rounded u**2 + wide min(u, u of float32)**2); the module says why."""
    u = unit_roundoff(dtype)
    wide = min(u, unit_roundoff("float32"))
    return STEP * float(np.sqrt(roundings.rounded * u**2 + roundings.wide * wide**2))


def in_line(error: float, other: float, floor: float) -> bool:
    """Whether a framework's error against the truth is in line with the other framework's."""
    return error <= 2 * other + floor


class Twins(Protocol):
    """A Flax computation and its torch twin on the same numbers, held in one dtype.

    Each run gives outputs as `output.*` and gradients as `parameter.*` and `input.*`; `run_truth`
    gives what the same numbers lead to in float64.
    """

    def run_flax(self) -> Mapping[str, np.ndarray]: ...
    def run_torch(self) -> Mapping[str, np.ndarray]: ...
    def run_truth(self) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class Row:
    """Both frameworks' error in one value, and what the theory adds to twice the other's."""

    name: str
    flax: float
    torch: float
    floor: float

    @property
    def in_line(self) -> bool:
        flax_is = in_line(self.flax, self.torch, self.floor)
        return flax_is and in_line(self.torch, self.flax, self.floor)


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


def measure(component: Component, dtype: str) -> list[Row]:
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
        Row(a.name, a.error, b.error, floor(dtype, component.roundings(a.name))) for a, b in pairs
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

    def worst(rows: list[Row], dtype: str) -> tuple[float, ...]:
        columns = zip(*((row.flax, row.torch, row.floor) for row in rows), strict=True)
        return tuple(max(column) / unit_roundoff(dtype) for column in columns)

    def entry(name: str, dtype: str) -> Entry:
        rows = measure(components[name], dtype)
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
