"""Learning rates of two sides: the formula that makes each sequence, and what differs of the two.

rate(t) = warm-up from a start over W updates, then one of: constant; linear or cosine from the
peak to an end at update T; peak * sqrt(W / t); peak * gamma ** t; a factor every k updates
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.explain.causes.evidence import Cause, deviation

TIGHT = 1e-10
FEWEST = 8


@dataclass(frozen=True)
class Schedule:
    """The formula of a sequence of rates.

    Args:
        kind: constant, linear, cosine, inverse square root, exponential, steps.
        warmup: updates until the peak.
        begin: what t counts the first update as: 0 or 1.
        start: the rate that warm-up begins at.
        peak, end: the largest rate and the last; end is None where it is not seen.
        total: the update at which the decay ends; None where it is not seen.
        factor: of one update (exponential) or one step.
    """

    kind: str
    warmup: int
    begin: int
    start: float
    peak: float
    end: float | None = None
    total: float | None = None
    factor: float | None = None


def identify_schedule(rates: np.ndarray) -> Schedule | None:
    """The formula that makes a sequence to rounding; None where none of few constants does."""
    if len(rates) < FEWEST or not np.isfinite(rates).all() or rates.max() <= 0:
        return None
    top = int(np.argmax(rates >= rates.max() * (1 - 1e-12)))
    for begin, warmup, start, first in _warmups(rates, top):
        after = rates[first:]
        t = np.arange(first, len(rates)) + begin
        if len(after) < FEWEST - 2:
            continue
        for kind, peak, end, total, factor in _decays(t, after, warmup):
            return Schedule(kind, warmup, begin, start, peak, end, total, factor)
    return None


def _warmups(rates: np.ndarray, top: int) -> Iterator[tuple[int, int, float, int]]:
    """(begin, warm-up, start, index of the first rate after it) that fit the first rates."""
    if top < 2:
        if top == 1 and rates[0] == 0:
            yield 0, 1, 0.0, 1
        elif top == 1:
            yield 1, 2, 0.0, 1
        yield 0, 0, float(rates[0]), 0
        return
    # The peak itself may lie on either side of the border.
    slope = np.diff(rates[: top + 1])
    if np.ptp(slope) > 1e-9 * slope[0]:
        return
    start = rates[0] - slope[0]
    if abs(start) <= 1e-9 * slope[0]:
        yield 1, top + 1, 0.0, top
    elif abs(rates[0]) <= 1e-9 * slope[0]:
        yield 0, top, 0.0, top
    else:
        yield 0, top, float(rates[0]), top


def _decays(
    t: np.ndarray, rates: np.ndarray, warmup: int
) -> Iterator[tuple[str, float, float | None, float | None, float | None]]:
    n = len(rates)
    if np.ptp(rates) <= TIGHT * rates[0]:
        yield "constant", float(rates[0]), None, None, None
        return
    if warmup and deviation(rates[0] * np.sqrt(t[0] / t), rates) <= TIGHT:
        yield "inverse square root", float(rates[0]), None, None, None
    ratio = rates[1:] / np.where(rates[:-1] == 0, 1, rates[:-1])
    if np.ptp(ratio) <= 1e-9 and rates.min() > 0:
        yield "exponential", float(rates[0]), None, None, float(ratio[0])
    moving = np.abs(np.diff(rates)) > 1e-12 * rates[0]
    last = int(np.flatnonzero(moving)[-1]) + 1 if moving.any() else 0
    flat = last < n - 2
    if last >= 3:
        x, y = t[: last + 1], rates[: last + 1]
        line = np.polyfit(x - x[0], y, 1)
        if deviation(np.polyval(line, x - x[0]), y) <= TIGHT and last >= 4:
            end = float(rates[-1]) if flat else None
            total = float(x[0] + (rates[-1] - line[1]) / line[0]) if flat else None
            yield "linear", float(line[1]), end, total, float(line[0])
        if found := _cosine(x, y):
            peak, end, total = found
            yield "cosine", peak, end, total, None
    changes = np.flatnonzero(moving)
    if 2 <= len(changes) <= n // 3 and np.ptp(np.diff(changes)) == 0:
        factors = ratio[changes]
        if np.ptp(factors) <= 1e-9:
            period = float(np.diff(changes)[0])
            yield "steps", float(rates[0]), None, period, float(factors[0])


def _cosine(t: np.ndarray, rates: np.ndarray) -> tuple[float, float, float] | None:
    """(peak, end, total) of A + B cos(pi (t - t0) / D), for t0 at the first rate's t."""
    if len(rates) < FEWEST - 2:
        return None
    x = t - t[0]

    def solve(width: float) -> tuple[float, np.ndarray]:
        matrix = np.stack([np.ones(len(x)), np.cos(np.pi * x / width)], 1)
        found = np.linalg.lstsq(matrix, rates, rcond=None)[0]
        return deviation(matrix @ found, rates), found

    widths = np.geomspace(x[-1], 400 * x[-1], 400)
    errors = [solve(w)[0] for w in widths]
    best = int(np.argmin(errors))
    low, high = widths[max(best - 1, 0)] * 0.98, widths[min(best + 1, len(widths) - 1)]
    for _ in range(120):
        a, b = low + (high - low) * 0.381966, low + (high - low) * 0.618034
        low, high = (low, b) if solve(a)[0] < solve(b)[0] else (a, high)
    width = (low + high) / 2
    if abs(width - round(width)) < 1e-4:
        width = float(round(width))
    error, (level, swing) = solve(width)
    # Over a small part of its period a cosine is a parabola, and says nothing of its ends.
    if error > TIGHT or x[-1] < 0.1 * width:
        return None
    return float(level + swing), float(level - swing), float(t[0] + width)


def explain_rates(ours: np.ndarray, theirs: np.ndarray) -> list[Cause]:
    """What makes the candidate's rates of the reference's: a factor, a shift, another formula."""
    if found := _related(ours, theirs):
        return [found]
    right, wrong = identify_schedule(ours), identify_schedule(theirs)
    if right is None or wrong is None:
        return []
    return list(_differences(right, wrong))


def _related(ours: np.ndarray, theirs: np.ndarray) -> Cause | None:
    ratio = float(theirs @ ours / (ours @ ours))
    if deviation(ratio * ours, theirs) <= TIGHT:
        if np.ptp(ours) <= TIGHT * ours.max():
            text = f"learning rate {theirs[0]:.6g}, where the reference has {ours[0]:.6g}"
            return Cause(text, f"use {ours[0]:.6g}", deviation(ratio * ours, theirs))
        text = f"learning rates are {ratio:.6g} times the reference's"
        return Cause(text, "remove the factor", deviation(ratio * ours, theirs))
    if len(ours) < FEWEST or np.ptp(ours) == 0:
        return None
    for step in (1, -1, 2, -2):
        a, b = (theirs[:-step], ours[step:]) if step > 0 else (theirs[-step:], ours[:step])
        if np.ptp(b) > 1e-6 * b.max() and deviation(a, b) <= TIGHT:
            again = ""
            if step < 0 and abs(theirs[0] - ours[0]) <= TIGHT * ours.max():
                again = ": the first rate is used again"
            text = f"learning rate of update n is that of update n {step:+d}{again}"
            return Cause(text, "shift the schedule's count of updates", deviation(a, b))
    for every in range(2, 9):
        stretched = ours[(np.arange(len(ours)) // every)]
        quick = ours[every - 1 :: every]
        if np.ptp(stretched) > 0 and deviation(stretched, theirs) <= TIGHT:
            text = f"the schedule advances once in {every} updates"
            return Cause(text, "advance it at every update", deviation(stretched, theirs))
        for begin in (every - 1, 0):
            quick = ours[begin::every]
            part = theirs[: len(quick)]
            if len(quick) >= 4 and np.ptp(quick) > 0 and deviation(quick, part) <= TIGHT:
                text = f"the schedule advances {every} times at every update"
                return Cause(text, "count updates, not small batches", deviation(quick, part))
    return None


def _differences(ours: Schedule, theirs: Schedule) -> Iterator[Cause]:
    if ours.kind != theirs.kind:
        yield Cause(
            f"the learning rate is {_said(theirs)}, where the reference is {_said(ours)}",
            f"use {_said(ours)}",
        )
        return
    for name, said in (
        ("warmup", "warm-up updates"),
        ("start", "first rate of the warm-up"),
        ("peak", "peak learning rate"),
        ("end", "learning rate at the end"),
        ("total", "updates between steps" if ours.kind == "steps" else "update at which it ends"),
        ("factor", "slope" if ours.kind == "linear" else "factor"),
    ):
        a, b = getattr(ours, name), getattr(theirs, name)
        small = name in ("start", "end") and abs(a or 0) + abs(b or 0) <= 1e-9 * ours.peak
        if small or a is None or b is None or abs(a - b) <= 1e-7 * max(abs(a), abs(b)):
            continue
        text = f"{said} {b:.6g}, where the reference has {a:.6g}"
        if name == "total" and ours.kind == "cosine" and abs(b - a - ours.warmup) < 1e-3:
            text += ": the warm-up is counted besides the decay"
        elif name == "total" and ours.kind == "cosine" and abs(a - b - ours.warmup) < 1e-3:
            text += ": the decay is shorter by the warm-up"
        if name == "factor" and ours.kind == "linear" and ours.total and theirs.total:
            continue
        yield Cause(text, f"set it to {a:.6g}")
    if ours.begin != theirs.begin:
        text = f"the first update counts as {theirs.begin}, in the reference as {ours.begin}"
        yield Cause(text, f"count from {ours.begin}")


def _said(schedule: Schedule) -> str:
    said = schedule.kind
    if schedule.warmup:
        said += f" after {schedule.warmup} updates of warm-up"
    return said
