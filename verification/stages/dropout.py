"""Dropout: where it acts, at which rate, how independently, and that it rests in evaluation.

The two frameworks draw from other generators, so single draws are not compared but what is certain
of them: survivors are scaled by 1 / (1 - rate) exactly, which gives the rate; whole axes are not
dropped alike; two evaluations are equal.
"""

import numpy as np

from parity.explain.causes.evidence import Cause
from parity.observe.arrays import is_float
from parity.observe.points import Recording
from verification.stages.finding import Finding

SITE = "dropout"


def compare_dropout(
    reference: tuple[Recording, Recording], candidate: tuple[Recording, Recording]
) -> list[Finding]:
    """Where dropout differs, and how, from two training runs of each side."""
    found = []
    for name in _sites(reference[0]):
        ours, theirs = (_site(runs, name) for runs in (reference, candidate))
        finding = _differences(name, ours, theirs) if ours else None
        if finding:
            found.append(finding)
    return found


def in_evaluation(first: Recording, second: Recording) -> list[Finding]:
    """The first module that makes two evaluations of the same input differ."""
    for key, passed in first.observed.items():
        pairs = zip(passed.arrays, second.observed[key].arrays, strict=True)
        if any(is_float(a) and not np.array_equal(a, b, equal_nan=True) for a, b in pairs):
            text = "dropout acts in evaluation: two runs on the same input differ"
            causes = [Cause(text, "drop only while the model is training")]
            return [Finding(passed.point.module, str(passed.point), None, causes)]
    return []


def _sites(run: Recording) -> list[str]:
    """Names of the dropout modules that are called, in order."""
    return [n for n, kind in run.observed if kind == "input" and SITE in n.rpartition(".")[2]]


def _site(
    runs: tuple[Recording, Recording], name: str
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """(what came in, what came out) of every run; None where the site is not called."""
    keys = (name, "input"), (name, "output")
    if any(key not in run.observed for run in runs for key in keys):
        return None
    before, after = keys
    return [(run.observed[before].arrays[0], run.observed[after].arrays[0]) for run in runs]


def _differences(name: str, ours: list, theirs: list | None) -> Finding | None:
    at = f"dropout.{name}"
    if theirs is None:
        missing = Cause("this dropout is missing: it is never applied", "apply it")
        return Finding(at, "never called", None, [missing])
    rates = _rate(ours), _rate(theirs)
    if abs(rates[0] - rates[1]) > 1e-6:
        text = f"rate {rates[1]:.6g}, where the reference has {rates[0]:.6g}"
        if abs(rates[0] + rates[1] - 1) < 1e-6:
            text += ": the share that is kept is taken for the rate"
        return Finding(at, "rate", abs(rates[0] - rates[1]), [Cause(text, "set the rate")])
    shapes = ours[0][0].shape, theirs[0][0].shape
    axes = [axis for axis in _alike(theirs) if axis not in _alike(ours)]
    if shapes[0] != shapes[1] or axes:
        text = f"one draw is broadcast: values of shape {shapes[1]} are drawn for {shapes[0]}"
        text = f"the same values are dropped all along axes {axes}" if axes else text
        cause = Cause(text, "draw for every value independently")
        return Finding(at, "independence", None, [cause])
    if np.array_equal(theirs[0][1] == 0, theirs[1][1] == 0) and rates[0] > 0:
        cause = Cause("every run drops the same values", "draw anew at each update")
        return Finding(at, "two runs are alike", None, [cause])
    return None


def _rate(runs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """From the scale of the survivors; 1 where nothing survives."""
    before, after = (np.concatenate([run[i].ravel() for run in runs]) for i in (0, 1))
    kept = (after != 0) & (before != 0)
    return 1 - 1 / float(np.median(after[kept] / before[kept])) if kept.any() else 1.0


def _alike(runs: list[tuple[np.ndarray, np.ndarray]]) -> list[int]:
    """Axes along which all slices are dropped alike, though some values are dropped."""
    before, after = runs[0]
    dropped = (after == 0) & (before != 0)
    usable = dropped.any() and (before != 0).all()
    axes = range(before.ndim) if usable else ()
    return [
        axis
        for axis in axes
        if before.shape[axis] > 1 and (dropped == dropped.take([0], axis)).all()
    ]
