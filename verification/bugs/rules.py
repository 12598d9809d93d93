"""Rules that ports are accepted by elsewhere, so that what they miss can be counted.

All three look at float32 logits alone, of weights as initialized (matrices of std 0.02, norms 1,
biases 0), which is how such comparisons are usually made.
"""

from collections.abc import Callable

import numpy as np


def largest_gap(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return bool(np.abs(ours - theirs).max() <= 1e-5)


def most_within(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return bool((np.abs(ours - theirs) <= 0.125).mean() >= 0.995)


def small_divergence(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """KL of the two next-token distributions, per token."""
    p, q = _log_softmax(ours), _log_softmax(theirs)
    return bool((np.exp(p) * (p - q)).sum(-1).max() < 0.75)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


RULES: dict[str, Callable[[np.ndarray, np.ndarray], bool]] = {
    "max |a - b| <= 1e-5": largest_gap,
    "99.5 % within 0.125": most_within,
    "KL per token < 0.75": small_divergence,
}


def accepted(rule: str, ours: np.ndarray, theirs: np.ndarray | None) -> bool:
    """Whether a rule calls two logits equal; never where a side does not run or is not finite."""
    if theirs is None or theirs.shape != ours.shape or not np.isfinite(theirs).all():
        return False
    return RULES[rule](ours, theirs)
