"""Fresh parameters: mean and spread of every group, side against side.

Until both sides draw the same numbers, their distributions are compared: groups of parameters of
one kind and shape, pooled over layers, by mean and standard deviation, within six standard errors.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from parity.explain.causes.evidence import Cause
from verification.stages.finding import Finding

SIGMAS = 6.0


def compare_initialization(
    ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]
) -> list[Finding]:
    """Where the distributions differ; `ours` and `theirs` are fresh parameters by name."""
    causes = [cause for group in _groups(ours, theirs) for cause in _differences(*group)]
    return [Finding("init", "distribution of fresh parameters", None, causes)] if causes else []


def _groups(ours: dict, theirs: dict) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    pools: dict[tuple, list[str]] = defaultdict(list)
    for name, value in ours.items():
        pools[".".join(name.split(".")[-2:]), value.shape].append(name)
    for (kind, _), names in pools.items():
        pooled = [np.concatenate([side[n].ravel() for n in names]) for side in (ours, theirs)]
        yield kind, pooled[0], pooled[1]


def _differences(kind: str, ours: np.ndarray, theirs: np.ndarray) -> Iterator[Cause]:
    spreads = ours.std(), theirs.std()
    means = ours.mean(), theirs.mean()
    # The standard deviation of n values has a relative error of about 1 / sqrt(2 n).
    slack = SIGMAS * spreads[0] / np.sqrt(2 * ours.size) * np.sqrt(2)
    if abs(spreads[0] - spreads[1]) > slack:
        text = f"std of {kind} {spreads[1]:.3g}, where the reference has {spreads[0]:.3g}"
        yield Cause(text, f"draw {kind} from the reference's distribution")
    elif abs(means[0] - means[1]) > SIGMAS * spreads[0] * np.sqrt(2 / ours.size):
        text = f"mean of {kind} {means[1]:.3g}, where the reference has {means[0]:.3g}"
        yield Cause(text, f"draw {kind} from the reference's distribution")
