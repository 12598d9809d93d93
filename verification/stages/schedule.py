"""The learning rates that the two sides use, update by update."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from parity.explain.causes.evidence import Cause
from parity.explain.causes.update import different_rates
from parity.judge.errors import relative_error
from transformer_spec.schedules import (
    Constant,
    InverseSqrt,
    Schedule,
    WarmupConstant,
    WarmupCosine,
    learning_rate,
)
from verification.stages.finding import Finding

# An update's batch in one piece, and in small batches.
ACCUMULATIONS = (1, 4)


def rate(schedule: Schedule, update: int, accumulation: int, **sizes: Any) -> float:
    """The rate of an update, in however many small batches it is computed."""
    return learning_rate(schedule, update, **sizes)


RATES: dict[str, Callable[..., float]] = {"flax": rate, "torch": rate}
SCHEDULES = (
    Constant(),
    WarmupConstant(warmup_steps=5),
    InverseSqrt(warmup_steps=5),
    WarmupCosine(warmup_steps=5),
)


def compare_schedules(
    d_model: int = 13, total: int = 40, tolerance: float = 1e-12
) -> list[Finding]:
    """Where the learning-rate sequences of the two sides differ, for every schedule."""
    sizes = {"peak": 0.3, "d_model": d_model, "total_steps": total}
    counts = range(1, total + 3)
    for schedule, accumulation in product(SCHEDULES, ACCUMULATIONS):
        ours, theirs = (
            np.array([RATES[side](schedule, n, accumulation, **sizes) for n in counts])
            for side in ("flax", "torch")
        )
        if relative_error(theirs, ours) > tolerance:
            causes = _rate_causes(schedule, accumulation, ours, theirs, sizes)
            name = type(schedule).__name__
            return [
                Finding(
                    "optimizer.schedule", f"rates of {name}", relative_error(theirs, ours), causes
                )
            ]
    return []


def _rate_causes(schedule: Schedule, accumulation: int, ours, theirs, sizes) -> list[Cause]:
    counted = range(accumulation, accumulation * (len(ours) + 1), accumulation)
    small = np.array([learning_rate(schedule, n, **sizes) for n in counted])
    if accumulation > 1 and relative_error(small, theirs) <= 1e-12:
        text = f"learning rate of update n is that of update {accumulation} n: the schedule counts"
        return [Cause(f"{text} small batches", "count updates", relative_error(small, theirs))]
    rates = different_rates(ours, theirs, sizes | schedule.to_dict())
    cosine = isinstance(schedule, WarmupCosine)
    shorter = sizes["total_steps"] - schedule.warmup_steps if cosine else 0
    if cosine:
        short = sizes | {"total_steps": shorter}
        known = [learning_rate(schedule, n, **short) for n in range(1, len(ours) + 1)]
        if relative_error(np.array(known), theirs) <= 1e-12:
            text = f"learning rate ends after {shorter} updates: the warmup is taken off the total"
            return [Cause(text, "count the warmup within the total", 0.0)]
    return list(rates)
