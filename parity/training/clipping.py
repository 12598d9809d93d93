"""Clipping, where a step shows gradients as the loss gives them and as the optimizer gets them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.explain.causes.evidence import Cause, deviation
from parity.training.probes import global_norm
from parity.training.record import Named, Step
from parity.training.result import Finding

TIGHT = 1e-11


@dataclass(frozen=True)
class Clip:
    """How a side clips: none, global norm, value, each array; and the limit where it is seen."""

    kind: str
    limit: float | None = None
    added: float = 0.0


def identify_clip(steps: Sequence[tuple[Named, Named]]) -> Clip | None:
    """The clipping that makes (gradients, clipped) at every step; None where none does."""
    if all(_deviates(g, c) <= TIGHT for g, c in steps):
        return Clip("none")
    factors = [_factor(g, c) for g, c in steps]
    if all(f is not None for f in factors):
        limits = [
            f * global_norm(g)
            for f, (g, _) in zip(factors, steps, strict=True)
            if f is not None and f < 1 - TIGHT
        ]
        if limits and np.ptp(limits) <= 1e-9 * limits[0]:
            return Clip("norm", limits[0])
        # limit / (norm + added), two unknowns from three steps or more.
        if len(limits) >= 3:
            a = [1 / f for f in factors if f is not None and f < 1 - TIGHT]
            norms = [limit * x for limit, x in zip(limits, a, strict=True)]
            slope, offset = np.polyfit(norms, a, 1)
            if deviation(np.polyval((slope, offset), norms), np.array(a)) <= TIGHT:
                return Clip("norm", float(1 / slope), float(offset / slope))
        return None
    limit = max(float(np.abs(c[n]).max()) for _, c in steps for n in c)
    if all(_deviates({n: np.clip(a, -limit, limit) for n, a in g.items()}, c) <= TIGHT
           for g, c in steps):  # fmt: skip
        return Clip("value", limit)
    return None


def _factor(grads: Named, clipped: Named) -> float | None:
    a, b = (np.concatenate([x[n].ravel() for n in sorted(clipped)]) for x in (grads, clipped))
    factor = float(a @ b / (a @ a))
    return factor if deviation(factor * a, b) <= TIGHT else None


def _deviates(a: Named, b: Named) -> float:
    return max((deviation(a[n], b[n]) for n in b if n in a), default=0.0)


def compare_clipping(
    right: Sequence[Step], wrong: Sequence[Step]
) -> tuple[list[Finding], dict[str, float]]:
    """Where both sides show clipped gradients: the two ways of clipping."""
    sides = []
    for steps in (right, wrong):
        if not all(s.clipped and s.gradients for s in steps):
            return [], {}
        sides.append(identify_clip([(s.gradients, s.clipped) for s in steps]))
    ours, theirs = sides
    if ours is None or theirs is None:
        return [], {}
    same = ours.kind == theirs.kind and np.isclose(ours.limit or 0, theirs.limit or 0, rtol=1e-9)
    if same:
        return [], {"clipping": 0.0}
    text = f"gradients are clipped by {_said(theirs)}, in the reference by {_said(ours)}"
    cause = Cause(text, f"clip by {_said(ours)}")
    return [Finding("clipping", "gradients", np.inf, [cause])], {"clipping": np.inf}


def _said(clip: Clip) -> str:
    if clip.kind == "none":
        return "nothing"
    added = f" with {clip.added:.3g} added" if clip.added else ""
    kind = "global norm" if clip.kind == "norm" else "value"
    return f"{kind}{added} ({clip.limit:.6g})"
