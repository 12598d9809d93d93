"""How far results move when the numbers they are made of move by one unit in the last place.

A correct computation may do its sums in another order. What that changes is of the size of what
neighbouring floating-point numbers change, which is measured: no name, depth or formula enters.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from parity.programs.program import Program, Results

Key = TypeVar("Key")

DRAWS = 3
# Roundings inside are as many as operations, the moved numbers only those that enter.
SAFETY = 32.0


def measure_rounding(
    program: Program,
    weights: Mapping[int, np.ndarray],
    epsilon: float,
    view: Callable[[Results], Mapping[Key, np.ndarray]],
    before: Mapping[Key, np.ndarray],
) -> dict[Key, float]:
    """The norm by which each result moves, the largest of a few draws.

    Args:
        weights: of the outputs in the sum that is differentiated.
        epsilon: the unit in the last place, relative: 2.2e-16 in float64.
        view: makes the results that are compared of outputs and gradients.
        before: these results as they are, with nothing moved.
    """
    moved = dict.fromkeys(before, 0.0)
    leaves = [v for v in program.values if v.kind in ("input", "parameter") and v.is_float]
    for draw in range(DRAWS):
        rng = np.random.default_rng([draw, 71])
        changed = {v.number: _neighbour(v.array, epsilon, rng) for v in leaves}
        # The gradient of a bias may depend on nothing but these.
        moved_weights = {n: _neighbour(array, epsilon, rng) for n, array in weights.items()}
        for key, after in view(program.rerun(changed, moved_weights)).items():
            moved[key] = max(moved[key], distance_of(after, before[key]))
    return moved


def _neighbour(array: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    return array * (1 + epsilon * rng.integers(-1, 2, array.shape))


def distance_of(ours: np.ndarray, theirs: np.ndarray) -> float:
    """||a - b|| over what is finite in both."""
    finite = np.isfinite(ours) & np.isfinite(theirs)
    return float(np.linalg.norm(ours[finite] - theirs[finite]))
