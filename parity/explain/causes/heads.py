"""What a head tied to a table does: logits from hidden states and rows that another module owns."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains


def different_head(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Logits f h E^T: which hidden states, which table, times what."""
    ours = _identify_head(evidence, value, value.reference)
    theirs = _identify_head(evidence, value, value.candidate) if ours else None
    if not ours or not theirs:
        return
    if ours[0] != theirs[0]:
        text = f"the head multiplies {theirs[0]}, where the reference has {ours[0]}"
        yield Cause(text, f"multiply {ours[0]}", theirs[2])
    if abs(theirs[1] / ours[1] - 1) > 1e-9:
        wrong, right = (describe_constant(side[1], evidence.sizes) for side in (theirs, ours))
        text = f"the tied head's input is scaled by {wrong}, where the reference has {right}"
        yield Cause(text, f"scale the hidden states by {right}", theirs[2])


def _identify_head(
    evidence: Evidence, value: Computed, y: np.ndarray
) -> tuple[str, float, float] | None:
    """(hidden states and table, factor, residual)."""
    tables = {n: t for n, t in evidence.inside.items() if t.ndim == 2}
    for (name, hidden), (owner, table) in product(value.read.items(), tables.items()):
        if hidden.dtype.kind != "f" or hidden.shape[-1:] != table.shape[1:]:
            continue
        if y.shape != (*hidden.shape[:-1], len(table)):
            continue
        logits = hidden @ table.T
        factor = float((logits * y).sum() / (logits * logits).sum())
        if explains(factor * logits, y):
            return f"{name} with {owner}", factor, deviation(factor * logits, y)
    return None
