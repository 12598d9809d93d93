"""Tables of rotations: the frequencies that cosines and sines were made of, solved for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains

# Frequencies come from angles of about float64's precision, through a logarithm.
TOLERANCE = 1e-8
# Rotations are looked for so many positions away.
LARGEST_SHIFT = 64


@dataclass(frozen=True)
class Table:
    """amplitude * exp(i f t) for positions t: the frequencies f [P], and what is left over."""

    frequencies: np.ndarray
    amplitude: float
    residual: float


@dataclass(frozen=True)
class Spectrum:
    """f_i = theta**(-i / P), the last `divided` of P pairs by `factor`, the first `kept` as is."""

    theta: float
    factor: float
    kept: int
    divided: int

    def scaling(self) -> str:
        """How the powers of theta are changed, in words."""
        if self.factor == 1:
            return "as they are"
        if not self.kept:
            return f"all divided by {self.factor:.6g}"
        return (
            f"divided by {self.factor:.6g} for the {self.divided} pairs of long wavelength and "
            f"kept for the {self.kept} of short"
        )


def different_rotation_table(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """A pair of cosines and sines [B, T, C, P] of positions [B, T, C]."""
    ids = next(iter(evidence.inputs), None)
    both = [c for c in evidence.computed if c.point == value.point]
    if ids is None or ids.dtype.kind not in "iu" or len(both) != 2:
        return
    if any(c.reference.shape[:-1] != ids.shape for c in both):
        return
    ours = _solve(ids, *(c.reference for c in both))
    moved = _shifted_positions(ids, ours, *(c.candidate for c in both)) if ours else None
    if moved:
        yield moved
        return
    theirs = _solve(ids, *(c.candidate for c in both))
    if ours is None or theirs is None:
        return
    if abs(theirs.amplitude - ours.amplitude) > TOLERANCE:
        text = f"cosines and sines times {theirs.amplitude:.6g}, in the reference times "
        fix = f"multiply them by {ours.amplitude:.6g}"
        yield Cause(text + f"{ours.amplitude:.6g}", fix, theirs.residual)
    if not np.allclose(theirs.frequencies, ours.frequencies, TOLERANCE, 0):
        for text, fix in _differences(ours.frequencies, theirs.frequencies, evidence.sizes):
            yield Cause(text, fix, theirs.residual)


def _shifted_positions(
    ids: np.ndarray, ours: Table, cos: np.ndarray, sin: np.ndarray
) -> Cause | None:
    """Right rotations, but of other positions: all of them earlier or later by as much."""
    for step in sorted(range(-LARGEST_SHIFT, LARGEST_SHIFT + 1), key=abs):
        predicted = ours.amplitude * np.exp(1j * (ids + step)[..., None] * ours.frequencies)
        if step and explains(predicted.real, cos) and explains(predicted.imag, sin):
            low, high = int(ids.min()), int(ids.max())
            text = f"rotations of positions {low + step} to {high + step}, where the ids are {low} "
            residual = deviation(predicted.imag, sin)
            return Cause(text + f"to {high}", "make the table from the given ids", residual)
    return None


def _solve(ids: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> Table | None:
    """From two neighbouring positions, then made exact at ever later ones."""
    positions, first = np.unique(ids, return_index=True)
    turns = (cos + 1j * sin).reshape(-1, cos.shape[-1])[first]
    steps = np.flatnonzero(np.diff(positions) == 1)
    amplitude = float(np.abs(turns).mean())
    if not steps.size or not np.isfinite(amplitude) or amplitude == 0:
        return None
    found = np.angle(turns[steps[0] + 1] * turns[steps[0]].conj())
    for t, angles in zip(positions, np.angle(turns), strict=True):
        if t > 0:
            found = (angles + 2 * np.pi * np.round((found * t - angles) / (2 * np.pi))) / t
    predicted = amplitude * np.exp(1j * ids[..., None] * found)
    if not (explains(predicted.real, cos) and explains(predicted.imag, sin)):
        return None
    return Table(found, amplitude, deviation(predicted.imag, sin))


def _differences(
    ours: np.ndarray, theirs: np.ndarray, sizes: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    """(text, fix) of each difference in what the frequencies are made of, or of themselves."""
    if np.allclose(theirs, -ours, TOLERANCE, 0):
        yield "rotated backwards: every angle has the opposite sign", "flip the sign of the sines"
        return
    right, wrong = identify_spectrum(ours), identify_spectrum(theirs)
    if right is None or wrong is None:
        shown = [" ".join(f"{f:.4g}" for f in side) for side in (theirs, ours)]
        text = (
            f"pairs rotate by {shown[0]} per position, where the reference's rotate by {shown[1]}"
        )
        yield text, "use the reference's frequencies"
        return
    if abs(wrong.theta / right.theta - 1) > TOLERANCE:
        yield _different_base(right.theta, wrong.theta, 2 * len(ours), sizes)
    elif (wrong.kept, wrong.divided) != (right.kept, right.divided):
        text = f"powers of theta {wrong.scaling()}, where the reference has them {right.scaling()}"
        yield text, "rescale them as the reference does"
        return
    if abs(wrong.factor / right.factor - 1) > TOLERANCE:
        text = f"powers of theta {wrong.scaling()}, where the reference has them {right.scaling()}"
        yield text, f"divide by {right.factor:.6g}"


def identify_spectrum(frequencies: np.ndarray) -> Spectrum | None:
    """Theta from the first two pairs; what the line through them leaves is the scaling."""
    pairs = len(frequencies)
    if pairs < 2 or not (frequencies > 0).all() or frequencies[0] <= frequencies[1]:
        return None
    theta = float((frequencies[0] / frequencies[1]) ** pairs)
    ratio = frequencies * theta ** (np.arange(pairs) / pairs)
    if np.allclose(ratio, ratio[0], TOLERANCE, 0):
        factor = 1 / float(ratio[0])
        even = abs(factor - 1) < TOLERANCE
        return Spectrum(theta, 1.0 if even else factor, pairs * even, pairs * (not even))
    kept, divided = (int(np.isclose(ratio, end, TOLERANCE, 0).sum()) for end in (1, ratio[-1]))
    if kept < 2 or divided < 2 or (np.diff(ratio) > TOLERANCE).any():
        return None
    return Spectrum(theta, 1 / float(ratio[-1]), kept, divided)


def _different_base(
    right: float, wrong: float, width: int, sizes: Mapping[str, float]
) -> tuple[str, str]:
    """Another theta; or the same, raised to fractions of another width."""
    for size in sizes.values():
        if size > width and abs(np.log(right) * width / (np.log(wrong) * size) - 1) < TOLERANCE:
            text = f"frequencies theta**(-2i / {size:g}), as if all of a head's {size:g} dimensions"
            text += f" rotated, where the reference has theta**(-2i / {width}), theta {right:.6g}"
            return text, f"divide the exponents by the {width} dimensions that rotate"
    text = f"frequencies of theta {wrong:.6g}, where the reference has theta {right:.6g}"
    return text, f"set theta={right:.6g}"
