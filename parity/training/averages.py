"""Averages of the parameters that a training keeps: the formula of each side's, and what differs.

a_t = d_t * a_(t-1) + (1 - d_t) * p_t,  d_t a constant, min(d, (1 + t) / (10 + t)), t / (t + 1)
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parity.explain.causes.evidence import Cause, deviation

TIGHT = 1e-10
FEWEST = 3


@dataclass(frozen=True)
class Average:
    """How an average of the parameters comes about.

    Args:
        start: what it starts from: the weights, or zeros.
        corrected: divided by 1 - decay ** t (from zeros).
        of: the parameters after the update, or before it.
        rule: constant, warm-up, equal (all weigh alike), skipped (only some updates).
        decay: the constant; what it is at the end of the warm-up where that is seen.
        every: updates for each change.
    """

    start: str
    corrected: bool
    of: str
    rule: str
    decay: float | None
    every: int = 1


def identify_average(weights: np.ndarray, averages: np.ndarray) -> Average | None:
    """The formula of a kept average; None where none of few constants makes it to rounding.

    Args:
        weights: [N + 1, values], the parameters before the first update and after each.
        averages: [N, values], after each update.
    """
    n = len(averages)
    if n < FEWEST or averages.shape[1] < 8:
        return None
    for of, seen in (("after", weights[1:]), ("before", weights[:-1])):
        for start, first in (("the weights", weights[0]), ("zeros", np.zeros_like(weights[0]))):
            decays = _decays(first, seen, averages)
            if decays is not None and (found := _rule(decays)):
                return Average(start, False, of, *found)
        if (decay := _corrected(seen, averages)) is not None:
            return Average("zeros", True, of, "constant", decay)
    return None


def _decays(first: np.ndarray, seen: np.ndarray, averages: np.ndarray) -> np.ndarray | None:
    """d_t of every update, each from many values; None where one of them does not fit."""
    found = []
    previous = first
    for p, average in zip(seen, averages, strict=True):
        gap = previous - p
        size = float(gap @ gap)
        scale = float(np.linalg.norm(p)) * np.finfo(float).eps
        if size <= (1e6 * scale) ** 2:
            # At the start the average is the weights themselves: any decay would do.
            if deviation(average, p) > 1e-14:
                return None
            found.append(np.nan)
        else:
            decay = float((average - p) @ gap / size)
            left = float(np.linalg.norm(average - p - decay * gap))
            if left > TIGHT * np.sqrt(size) + 64 * scale:
                return None
            found.append(decay)
        previous = average
    return np.array(found)


def _rule(decays: np.ndarray) -> tuple[str, float | None, int] | None:
    t = np.arange(1, len(decays) + 1)
    known = ~np.isnan(decays)
    if known.sum() < FEWEST - 1:
        return None
    d, t = decays[known], t[known]

    def near(a: np.ndarray, b: np.ndarray | float) -> bool:
        return bool(np.all(np.abs(a - b) <= 1e-7))

    if near(d, d[-1]):
        return ("constant", _short(d[-1]), 1) if 0 <= d[-1] < 1 else None
    moving = np.abs(d - 1) > 1e-9
    if not moving.all() and moving.sum() >= 2:
        steps = np.diff(t[moving])
        if np.ptp(steps) == 0 and near(d[moving], d[moving][-1]):
            return "skipped", _short(d[moving][-1]), int(steps[0])
    for shift in (-1, 0, 1):
        u = t + shift
        for rule, formula in _RULES.items():
            values = formula(u.astype(float))
            reached = d < values - 1e-9
            if near(d[~reached], values[~reached]) and (~reached).sum() >= 2:
                rest = d[reached]
                if rest.size == 0:
                    return f"{rule}{_counted(shift)}", None, 1
                if near(rest, rest[-1]):
                    return f"{rule}{_counted(shift)}", _short(rest[-1]), 1
    return None


_RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "warm-up min(d, (1 + t) / (10 + t))": lambda t: (1 + t) / (10 + t),
    "equal weights t / (t + 1)": lambda t: t / (t + 1),
    "warm-up 1 - (1 + t) ** (-2 / 3)": lambda t: 1 - (1 + np.maximum(t, 0)) ** (-2 / 3),
    "warm-up 1 - 1 / (1 + t)": lambda t: 1 - 1 / (1 + np.maximum(t, 0)),
}


def _counted(shift: int) -> str:
    return "" if shift == 0 else f", t counted from {1 + shift}"


def _corrected(seen: np.ndarray, averages: np.ndarray) -> float | None:
    """The decay of an average from zeros that is divided by 1 - decay ** t."""
    if deviation(averages[0], seen[0]) > 1e-12 or len(averages) < FEWEST:
        return None
    # a_2 (1 - d^2) = d (1 - d) p_1 + (1 - d) p_2, so that a_2 - p_2 = d / (1 + d) (p_1 - p_2).
    gap = seen[0] - seen[1]
    share = float((averages[1] - seen[1]) @ gap / (gap @ gap))
    if not 0 < share < 0.5:
        return None
    decay = _short(share / (1 - share))
    raw = np.zeros_like(seen[0])
    for t, (p, average) in enumerate(zip(seen, averages, strict=True), 1):
        raw = decay * raw + (1 - decay) * p
        if deviation(raw / (1 - decay**t), average) > TIGHT:
            return None
    return decay


def _short(decay: float) -> float:
    return 1 - float(f"{1 - decay:.6g}")


def explain_averages(right: Average, wrong: Average) -> list[Cause]:
    """What differs of two formulas, with fixes."""
    found = []
    if (right.start, right.corrected) != (wrong.start, wrong.corrected):
        said = [
            f"the average starts at {a.start}" + (
                "" if a.start == "the weights" else
                f" and is {'' if a.corrected else 'not '}divided by 1 - decay**t"
            )
            for a in (wrong, right)
        ]  # fmt: skip
        found.append(Cause(f"{said[0]}; in the reference {said[1]}", f"as there: {said[1]}"))
    if right.of != wrong.of:
        text = f"the average takes the weights {wrong.of} the update, in the reference {right.of}"
        found.append(Cause(text, f"average the weights {right.of} the update"))
    if (right.rule, right.every) != (wrong.rule, wrong.every):
        a, b = _rule_said(wrong), _rule_said(right)
        found.append(Cause(f"the average's decay: {a}; in the reference {b}", f"use {b}"))
    elif right.decay is not None and wrong.decay is not None and right.decay != wrong.decay:
        text = f"the average's decay is {wrong.decay:.6g}, in the reference {right.decay:.6g}"
        found.append(Cause(text, f"set it to {right.decay:.6g}"))
    return found


def _rule_said(average: Average) -> str:
    said = average.rule if average.rule != "skipped" else f"once in {average.every} updates"
    return said if average.decay is None else f"{said}, {average.decay:.6g}"
