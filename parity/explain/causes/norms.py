"""Which normalization a module computes, its epsilon solved for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from parity.explain.causes.evidence import ROUNDING, Cause, Computed, Evidence, deviation


@dataclass(frozen=True)
class NormForm:
    """y = (x - [mean]) / den * weight + bias with den**2 = gain * var + eps, or its root + eps.

    Args:
        centered: the mean is taken away.
        root: eps is inside the root, beside the variance; else beside the standard deviation.
        gain: what var is multiplied with: D / (D - 1) for the unbiased one.
        eps: solved from the values.
        extra: what is added to the weight, solved from the values: 1 in the (1 + w) form.
    """

    centered: bool
    root: bool
    gain: float
    eps: float
    extra: float
    residual: float

    def differences(self, other: "NormForm", features: int) -> list[tuple[str, str, str]]:
        """(what the candidate does, what the reference does, the fix), for each that differs."""
        found = []
        if self.centered != other.centered:
            kinds = {True: "takes the mean away", False: "does not take the mean away"}
            found.append((kinds[self.centered], kinds[other.centered], "match the kind of norm"))
        if abs(self.gain - other.gain) > 1e-6:
            text = f"divides by {_divisor(self.gain, features)}"
            right = f"divides by {_divisor(other.gain, features)}"
            found.append((text, right, "use the same divisor of the variance"))
        if self.root != other.root and max(self.eps, other.eps) > 0:
            places = {True: "inside the root", False: "added to the standard deviation"}
            text = f"epsilon is {places[self.root]}"
            found.append((text, f"epsilon is {places[other.root]}", f"put it {places[other.root]}"))
        elif abs(self.eps - other.eps) > 1e-3 * max(self.eps, other.eps):
            found.append(
                (f"epsilon {self.eps:.3g}", f"epsilon {other.eps:.3g}", f"set eps={other.eps:.3g}")
            )
        if abs(self.extra - other.extra) > 1e-6:
            fix = "add it once: where the weight is converted, or in the norm"
            found.append((f"weight + {self.extra:g}", f"weight + {other.extra:g}", fix))
        return found


def _divisor(gain: float, features: int) -> str:
    unbiased = features > 1 and abs(gain - features / (features - 1)) < 1e-6
    return "n - 1 (unbiased)" if unbiased else "n" if abs(gain - 1) < 1e-6 else f"n / {gain:.6g}"


def different_norm(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    if value.point.name != evidence.module or "weight" not in evidence.params:
        return
    x = evidence.inputs[0] if evidence.inputs else None
    weight, bias = evidence.params["weight"], evidence.params.get("bias", 0.0)
    if x is None or x.shape != value.reference.shape or weight.shape != x.shape[-1:]:
        return
    for theirs in identify_norm(x, value.candidate, weight, bias):
        for ours in identify_norm(x, value.reference, weight, bias):
            for wrong, right, fix in theirs.differences(ours, x.shape[-1]):
                yield Cause(f"{wrong} where the reference {right}", fix, theirs.residual)
            return


def identify_norm(x: np.ndarray, y: np.ndarray, weight: np.ndarray, bias) -> Iterator[NormForm]:
    """The forms that y is of, the most ordinary first."""
    for solved in (False, True):
        for centered in (True, False):
            extra = added_to_weight(_kept(x, centered), y - bias, weight) if solved else 0.0
            for root in (True, False):
                form = _fit(x, y, weight + extra, bias, centered, root)
                if form and form.residual <= 100 * ROUNDING:
                    yield replace(form, extra=extra)


def added_to_weight(kept: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """e of y = kept * (weight + e) / den, den one per row; 0 where all weights are alike.

    Least squares of each row gives 1 / den and e / den, its factors on kept * weight and kept.
    """
    scaled = kept * weight
    aa, ab, bb = ((u * v).sum(-1) for u, v in ((scaled, scaled), (scaled, kept), (kept, kept)))
    ay, by = (scaled * y).sum(-1), (kept * y).sum(-1)
    with np.errstate(all="ignore"):
        extra = float((aa * by - ab * ay).sum() / (bb * ay - ab * by).sum())
    if np.ptp(weight) == 0 or not np.isfinite(extra):
        return 0.0
    return float(np.round(extra)) if abs(extra - np.round(extra)) < 1e-6 else extra


def _kept(x: np.ndarray, centered: bool) -> np.ndarray:
    return x - x.mean(-1, keepdims=True) if centered else x


def _fit(x, y, weight, bias, centered: bool, root: bool) -> NormForm | None:
    """Solve gain and eps: each row's denominator is linear in its variance or its deviation."""
    kept = _kept(x, centered)
    variance = np.square(kept).mean(-1)
    with np.errstate(all="ignore"):
        scaled = kept * weight
        inverse = (scaled * (y - bias)).sum(-1) / np.square(scaled).sum(-1)
        den = 1 / inverse
    usable = np.isfinite(den) & (variance > 0)
    if usable.sum() < 3:
        return None
    target, regressor = (den**2, variance) if root else (den, np.sqrt(variance))
    gain, eps = _line(regressor[usable], target[usable])
    gain = _snapped(gain if root else gain**2, x.shape[-1])
    eps = _intercept(gain if root else gain**0.5, regressor[usable], target[usable])
    base = gain * variance + eps if root else np.sqrt(gain * variance) + eps
    with np.errstate(all="ignore"):
        predicted = kept / (np.sqrt(base) if root else base)[..., None] * weight + bias
    return NormForm(centered, root, gain, max(eps, 0.0), 0.0, deviation(predicted, y))


def _line(regressor: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    matrix = np.stack([regressor, np.ones_like(regressor)], 1) / target[:, None]
    (slope, intercept), *_ = np.linalg.lstsq(matrix, np.ones_like(target), rcond=None)
    return float(slope), float(intercept)


def _snapped(gain: float, features: int) -> float:
    """1 or D / (D - 1) where the fit comes near: then eps is solved with the exact one."""
    nice = [1.0, *([features / (features - 1)] if features > 1 else [])]
    nearest = min(nice, key=lambda n: abs(n - gain))
    return nearest if abs(nearest - gain) < 1e-3 else gain


def _intercept(gain: float, regressor: np.ndarray, target: np.ndarray) -> float:
    """The weighted mean of what is left: small rows, where eps shows, count most."""
    weights = 1 / target
    return float(((target - gain * regressor) * weights).sum() / weights.sum())
