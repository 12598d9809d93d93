"""Attention written out in one go: roles of three projections, heads, causality, the scale.

Where nothing is named between the projections and what comes after them, the whole of it is solved
for: which projection is the query, how many heads there are, whether it is causal, and the factor
on the scores.
"""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import ROUNDING, Cause, Computed, Evidence, deviation

# Roles, heads, causal, scale, residual.
AttentionForm = tuple[tuple[str, str, str], int, bool, float, float]
_START = 0.3
# Projections are what was read last before attention.
PROJECTIONS_CONSIDERED = 4


def different_attention(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    ours = _identify_attention(value.reference, value)
    theirs = _identify_attention(value.candidate, value) if ours else None
    if not ours or not theirs:
        return
    residual = theirs[4]
    if ours[0] != theirs[0]:
        wrong, right = (_roles(form[0]) for form in (theirs, ours))
        text = f"{wrong}, where in the reference {right}"
        yield Cause(text, "pass q, k and v in the reference's order", residual)
    if ours[1] != theirs[1]:
        text = f"{theirs[1]} heads, where the reference has {ours[1]}"
        yield Cause(text, f"use {ours[1]} heads", residual)
    if ours[2] != theirs[2]:
        kinds = {True: "causal", False: "not causal"}
        text = f"{kinds[theirs[2]]}, where the reference is {kinds[ours[2]]}"
        yield Cause(text, "use the same mask", residual)
    if abs(theirs[3] / ours[3] - 1) > 1e-6:
        sizes = dict(evidence.sizes) | {"head_dim": value.reference.shape[-1] // ours[1]}
        wrong, right = (describe_constant(round(form[3], 8), sizes) for form in (theirs, ours))
        text = f"score scale {wrong}, where the reference has {right}"
        yield Cause(text, f"scale the scores by {right}", residual)


def _roles(roles: tuple[str, str, str]) -> str:
    return f"{roles[0]} is the query, {roles[1]} the key and {roles[2]} the value"


def _identify_attention(wanted: np.ndarray, value: Computed) -> AttentionForm | None:
    usable = [
        (n, a) for n, a in value.read.items()
        if a.ndim == 3 and a.dtype.kind == "f" and a.shape == wanted.shape
    ]  # fmt: skip
    usable = usable[-PROJECTIONS_CONSIDERED:]
    if wanted.ndim != 3 or len(usable) < 3:
        return None
    width = wanted.shape[-1]
    heads = [n for n in range(1, width + 1) if width % n == 0]
    for a, b, c in permutations(usable, 3):
        q, k, v = (array.astype(np.float64) for _, array in (a, b, c))
        for count in heads:
            for causal in (True, False):
                found = _solve_scale(q, k, v, count, causal, wanted)
                if found:
                    return (a[0], b[0], c[0]), count, causal, *found
    return None


def _attend(q, k, v, heads: int, causal: bool, scale: float) -> np.ndarray:
    split = [a.reshape(*a.shape[:2], heads, -1) for a in (q, k, v)]
    scores = scale * np.einsum("BTNH,BSNH->BNTS", split[0], split[1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("BNTS,BSNH->BTNH", weights, split[2]).reshape(q.shape)


def _solve_scale(q, k, v, heads, causal, wanted) -> tuple[float, float] | None:
    """Gauss-Newton on the one unknown, from the usual scales."""
    width = q.shape[-1] // heads
    starts = sorted({width**-0.5, q.shape[-1] ** -0.5, 1.0, width**0.5, _START})
    for start in starts:
        scale = _newton(q, k, v, heads, causal, wanted, start)
        residual = deviation(_attend(q, k, v, heads, causal, scale), wanted)
        if residual <= ROUNDING:
            return scale, residual
        if residual > 2:
            return None
    return None


def _newton(q, k, v, heads, causal, wanted, scale: float) -> float:
    for _ in range(40):
        at = _attend(q, k, v, heads, causal, scale)
        step = 1e-6 * max(abs(scale), 1e-3)
        slope = (_attend(q, k, v, heads, causal, scale + step) - at) / step
        square = float((slope * slope).sum())
        if deviation(at, wanted) < 1e-13 or square == 0:
            break
        change = float((slope * (wanted - at)).sum()) / square
        if abs(change) > 0.5 * abs(scale) + 0.1:
            break
        scale += change
    return scale
