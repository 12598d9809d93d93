"""Where a side computes in less than float64 although it was given float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from parity.programs.program import Program, Source

NARROW = ("float32", "bfloat16", "float16")
# In float64 no two formulas differ by less, but for an epsilon that is smaller still.
_SAME = 1e-10
# Units in the last place that a chain of operations leaves.
_GROWTH = 256
_MOST = 3e-2


@dataclass(frozen=True)
class Island:
    """Lines of one side that compute in a narrower type.

    Args:
        source: the first operation's line.
        count: how many operations it has.
    """

    framework: str
    dtype: str
    source: Source
    count: int


def find_islands(program: Program) -> list[Island]:
    """The operations that compute in a narrower type than float64, by line."""
    found: dict[tuple[str, int, str], list[Source]] = {}
    for operation in program.operations:
        for number in operation.outputs:
            value = program.values[number]
            if value.dtype in NARROW and value.array.size > 1:
                key = (operation.source.file, operation.source.line, value.dtype)
                found.setdefault(key, []).append(operation.source)
    return [
        Island(program.framework, dtype, sources[0], len(sources))
        for (_, _, dtype), sources in found.items()
    ]


def unit(islands: Sequence[Sequence[Island]]) -> float:
    """The unit in the last place of the narrowest type that either side computes in."""
    dtypes = {island.dtype for found in islands for island in found}
    return max([float(np.finfo(float).eps), *(float(jnp.finfo(d).eps) for d in dtypes)])


def content_tolerance(epsilon: float) -> float:
    """Up to which norm-wise difference two values are the same: 1e-10 in float64."""
    return min(max(_SAME, _GROWTH * epsilon), _MOST)
