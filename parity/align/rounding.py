"""How far results move when the numbers they are made of move by one unit in the last place.

A correct computation may do its sums in another order. What that changes is of the size of what
neighbouring floating-point numbers change, which is measured: no name, depth or formula enters.
"""

from collections.abc import Mapping

import numpy as np

from parity.programs.program import Program

DRAWS = 3
# Roundings inside are as many as operations, the moved numbers only those that enter.
SAFETY = 32.0


def measure_rounding(
    program: Program, weights: Mapping[int, np.ndarray], epsilon: float
) -> tuple[dict[int, float], dict[int, float]]:
    """The norm by which each output and each gradient moves, the largest of a few draws.

    Args:
        weights: of the outputs in the sum that is differentiated.
        epsilon: the unit in the last place, relative: 2.2e-16 in float64.
    """
    outputs, gradients = program.rerun({}, weights)
    moved = (dict.fromkeys(outputs, 0.0), dict.fromkeys(gradients, 0.0))
    leaves = [v for v in program.values if v.kind in ("input", "parameter") and v.is_float]
    for draw in range(DRAWS):
        rng = np.random.default_rng([draw, 71])
        changed = {
            v.number: v.array * (1 + epsilon * rng.integers(-1, 2, v.array.shape)) for v in leaves
        }
        for largest, before, after in zip(
            moved, (outputs, gradients), program.rerun(changed, weights), strict=True
        ):
            for number in largest:
                step = float(np.linalg.norm(after[number] - before[number]))
                largest[number] = max(largest[number], step)
    return moved
