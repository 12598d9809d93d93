"""The constants with which a member of the optimizers' family makes the updates of a record.

Residuals are counted in roundings: units in the last place of the parameters and of their updates.
A member is accepted where what it leaves is rounding, and never with about as many unknowns as
there are updates.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from parity.training.family import Constants, Form, Track, directions, predict

UNIT = float(np.finfo(np.float64).eps)
# Root mean square of the residual, in units in the last place. A structure that differs leaves
# far more: the records hold gradients of many sizes.
ACCEPTED = 100.0
# Values for each unknown.
SPARE = 8
STEPS = 40
# Steps that do not bring a fit nearer by much, after which a start is given up.
PATIENCE = 5
STARTS: Mapping[str, tuple[float, ...]] = {
    "beta1": (0.9, 0.5),
    "beta2": (0.999, 0.95),
    "epsilon": (1e-8, 1e-4, 1e-30),
    "decay": (1e-2,),
    "start": (0.1,),
    "limit": (1.0,),
}


@dataclass(frozen=True)
class Fit:
    """A member with its constants.

    Args:
        rates: of every update.
        residual: root mean square, in roundings.
        spread: by constant, the relative error it may have.
    """

    form: Form
    constants: Constants
    rates: np.ndarray
    residual: float
    spread: Mapping[str, float] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return self.residual <= ACCEPTED

    @property
    def steady(self) -> bool:
        """Whether all updates have one rate."""
        return bool(np.ptp(self.rates) <= 1e-9 * abs(self.rates).max())


def evaluate(
    form: Form, constants: Constants, track: Track, rates: np.ndarray | None = None
) -> Fit:
    """How well given constants reproduce a record; rates are solved unless they are given.

    Rates are one factor times the record's known ones, or one for every update without these.
    """
    return _evaluate(form, constants, track, _sigma(track), rates)[0]


def _sigma(track: Track) -> np.ndarray:
    largest = np.abs(track.moved).max(0)
    return UNIT * (np.abs(track.before) + np.abs(track.moved) + largest) + 1e-300


def _evaluate(
    form: Form, c: Constants, track: Track, sigma: np.ndarray, rates: np.ndarray | None
) -> tuple[Fit, np.ndarray]:
    with np.errstate(all="ignore"):
        u = directions(form, c, track)
        if rates is None:
            rates = _solve_rates(form, c, track, u, sigma)
        residual = ((track.moved - predict(form, c, track, rates, u)) / sigma).ravel()
        size = float(np.sqrt(np.mean(residual**2)))
    size = size if np.isfinite(size) else np.inf
    return Fit(form, dict(c), rates, size), residual


def _solve_rates(
    form: Form, c: Constants, track: Track, u: np.ndarray, sigma: np.ndarray
) -> np.ndarray:
    """The rates of least squares: per update, or one factor of the known ones."""
    wanted = -track.moved
    decay = c.get("decay", 0.0)
    if form.decay == "free":
        wanted = wanted - decay * track.before
    rates = np.zeros(len(u))
    for _ in range(6 if form.decay == "after" else 1):
        column = u
        if form.decay == "decoupled":
            column = u + decay * track.before
        elif form.decay == "after":
            column = u + decay * (track.before - rates[:, None] * u)
        column, target = column / sigma, wanted / sigma
        if track.rates is None:
            rates = (column * target).sum(1) / ((column**2).sum(1) + 1e-300)
        else:
            column = column * track.rates[:, None]
            rates = track.rates * (column * target).sum() / ((column**2).sum() + 1e-300)
    return rates


def fit(
    form: Form,
    track: Track,
    hints: Iterable[Constants] = (),
    known: Constants | None = None,
    grid: bool = True,
) -> Fit | None:
    """The best constants of a structure, by Levenberg-Marquardt from several starts.

    Args:
        hints: constants to start from before the usual ones.
        known: constants that are held.
        grid: whether the usual starts are tried too.
    """
    known = {n: x for n, x in (known or {}).items() if n in form.constants()}
    names = [name for name in form.constants() if name not in known]
    unknowns = len(names) + (1 if track.rates is not None else len(track.gradients))
    if track.moved.size < SPARE * unknowns or not np.any(track.moved):
        return None
    sigma = _sigma(track)
    best: Fit | None = None
    for start in _starts(names, track, hints, grid):
        found = _refine(form, track, sigma, {**known, **start}, names)
        if best is None or found.residual < best.residual:
            best = found
        if best.accepted:
            break
    return best


def _starts(
    names: list[str], track: Track, hints: Iterable[Constants], grid: bool
) -> Iterator[dict[str, float]]:
    for hint in hints:
        yield {n: _inside(n, hint.get(n, STARTS[n][0])) for n in names}
    if not grid:
        return
    choices = []
    for name in names:
        if name == "limit":
            choices.append(tuple(np.quantile(track.norms, [0.3, 0.6])))
        else:
            choices.append(STARTS[name])
    for values in product(*choices):
        yield dict(zip(names, values, strict=True))


def _inside(name: str, value: float) -> float:
    if name in ("beta1", "beta2"):
        return float(np.clip(value, 0.02, 1 - 1e-9))
    return max(float(value), 1e-30)


def _refine(
    form: Form, track: Track, sigma: np.ndarray, start: dict[str, float], names: list[str]
) -> Fit:
    held = {n: x for n, x in start.items() if n not in names}

    def at(theta: np.ndarray) -> tuple[Fit, np.ndarray]:
        opened = {n: _opened(n, x) for n, x in zip(names, theta, strict=True)}
        return _evaluate(form, {**held, **opened}, track, sigma, None)

    theta = np.array([_closed(n, start[n]) for n in names])
    best, residual = at(theta)
    if not names or not np.isfinite(best.residual):
        return best
    damping, slopes, slow = 1e-3, None, 0
    for _ in range(STEPS):
        slopes = np.stack([(at(theta + d)[1] - residual) / 1e-6 for d in 1e-6 * np.eye(len(names))])
        if not np.isfinite(slopes).all():
            return best
        square, pull = slopes @ slopes.T, slopes @ residual
        before = best.residual
        for _ in range(6):
            damped = square + damping * np.diag(np.diag(square) + 1e-300)
            step = -np.linalg.lstsq(damped, pull, rcond=None)[0]
            step = np.clip(step, -4, 4)
            tried, left = at(theta + step)
            if tried.residual < best.residual:
                theta, best, residual = theta + step, tried, left
                damping = max(damping / 30, 1e-14)
                break
            damping *= 10
        slow = slow + 1 if best.residual > 0.3 * before else 0
        if best.residual > 0.999 * before or (slow == PATIENCE and not best.accepted):
            break
    if slopes is None or not best.accepted:
        return best
    variance = np.diag(np.linalg.pinv(slopes @ slopes.T))
    spread = np.sqrt(np.abs(variance)) * max(best.residual, 1.0)
    spread = np.where((slopes**2).sum(1) == 0, np.inf, spread)
    found = _rounded(form, best, track, sigma, names)
    return replace(found, spread=dict(zip(names, map(float, spread), strict=True)))


def _rounded(form: Form, best: Fit, track: Track, sigma: np.ndarray, names: list[str]) -> Fit:
    """Constants as a user types them, of few digits, where they do as well."""
    for name in names:
        value = best.constants[name]
        for digits in range(1, 10):
            short = float(f"{value:.{digits}g}")
            if name in ("beta1", "beta2"):
                short = 1 - float(f"{1 - value:.{digits}g}")
            if short == 0 or abs(short - value) > 1e-3 * abs(value):
                continue
            tried = _evaluate(form, {**best.constants, name: short}, track, sigma, None)[0]
            if tried.residual <= 1.1 * best.residual + 0.05:
                best = tried
                break
    return best


def _closed(name: str, value: float) -> float:
    return float(np.log(value / (1 - value)) if name in ("beta1", "beta2") else np.log(value))


def _opened(name: str, theta: float) -> float:
    if name in ("beta1", "beta2"):
        return float(1 / (1 + np.exp(-theta)))
    return float(np.exp(np.clip(theta, -700, 700)))
