"""Low precision: how far from the float64 truth a correct computation may be, and how far it is.

Both frameworks take the same numbers, held in float32, bfloat16 or float16; the truth takes them in
float64. Neither is right to the last digit, so each is held against the other: an error is within
tolerance if it is at most twice the other's, plus a floor. Twice the other's: what the problem
itself makes of a rounding (a steep softmax, a cancelling sum) meets both alike. The floor is for
what it need not: a framework that keeps a chain in its accumulator rounds once where the other
rounds each time.

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

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

DTYPES = ("float32", "bfloat16", "float16")
STEP = float(np.sqrt(2 * np.log(2)) / 3)
LIBRARY_ROUNDINGS = 4


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


def rounding_floor(dtype: str, roundings: Roundings) -> float:
    """STEP sqrt(rounded u**2 + wide min(u, u of float32)**2); the module says why."""
    u = unit_roundoff(dtype)
    wide = min(u, unit_roundoff("float32"))
    return STEP * float(np.sqrt(roundings.rounded * u**2 + roundings.wide * wide**2))


def within_tolerance(error: float, other: float, floor: float) -> bool:
    """Whether a framework's error against the truth is at most twice the other's plus a floor."""
    return error <= 2 * other + floor
