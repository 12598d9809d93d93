"""Gradients that differ where the forward pass agrees."""

from collections.abc import Iterator

import numpy as np

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, Evidence, deviation, explains


def different_gradients(evidence: Evidence) -> Iterator[Cause]:
    for name, (r, c) in evidence.gradients.items():
        if r.shape == c.shape and not explains(c, r):
            yield from _explained(evidence, name, r, c)


def _explained(evidence: Evidence, name: str, r: np.ndarray, c: np.ndarray) -> Iterator[Cause]:
    if not c.any():
        text = f"no gradient flows to {name}: it is detached, or its gradient stopped"
        yield Cause(text, "remove the detach or stop_gradient", 0.0)
        return
    rows = _zero_rows(r, c)
    if rows:
        text = f"row {', '.join(map(str, rows))} of {name} gets no gradient (a padding_idx?)"
        yield Cause(text, "use no padding_idx, or mask the loss instead", 0.0)
        return
    factor = float((r * c).sum() / (r * r).sum())
    if factor and explains(factor * r, c):
        text = f"the gradient of {name} is scaled by {describe_constant(factor, evidence.sizes)}"
        yield Cause(text, "remove the factor", deviation(factor * r, c))
        return
    ids = next((a for a in evidence.inputs if a.dtype.kind in "iu"), None)
    if ids is not None and r.ndim == 2:
        unread = _unread(ids, len(c))
        if r[unread].any() and not c[unread].any():
            text = f"{name} gets the gradient of its rows as read, none of a tied head's"
            yield Cause(text, "let the head use the table itself, not a copy")


def _zero_rows(r: np.ndarray, c: np.ndarray) -> list[int]:
    """Rows that are zero in c alone, if all others agree."""
    if r.ndim < 2:
        return []
    zero = ~c.reshape(len(c), -1).any(1) & r.reshape(len(r), -1).any(1)
    agrees = explains(np.where(zero.reshape(-1, *[1] * (r.ndim - 1)), r, c), r)
    return [int(i) for i in np.flatnonzero(zero)] if agrees and 0 < zero.sum() < 4 else []


def _unread(ids: np.ndarray, count: int) -> np.ndarray:
    unread = np.ones(count, bool)
    unread[ids.ravel()] = False
    return unread
