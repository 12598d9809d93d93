"""What an optimizer's update does: betas, epsilon, decay and rate solved from one step's numbers.

`right` and `wrong` are one update of the reference and of the candidate, from the same values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, deviation

Named = Mapping[str, np.ndarray]
TIGHT = 1e-9


@dataclass(frozen=True)
class Update:
    """One update: what went in, and what each part made of it, by parameter name.

    Args:
        count: the update's number, from 1.
        before, after: the parameters.
        grads, clipped: their gradients as given, and after clipping.
        m0, v0, m, v: both moments before and after.
    """

    count: int
    before: Named
    grads: Named
    clipped: Named
    m0: Named
    v0: Named
    m: Named
    v: Named
    after: Named


def _flat(values: Named) -> np.ndarray:
    return np.concatenate([values[name].ravel() for name in sorted(values)])


def different_clip(right: Update, wrong: Update, limit: float) -> Iterator[Cause]:
    grads, clipped, wanted = (_flat(x) for x in (right.grads, wrong.clipped, right.clipped))
    norm = np.linalg.norm(grads)
    if deviation(np.clip(grads, -limit, limit), clipped) <= TIGHT:
        text = f"clip: single values are cut to [-{limit:g}, {limit:g}], not the norm"
        yield Cause(text, "scale all gradients by limit / norm", 0.0)
        return
    factor = float(grads @ clipped / (grads @ grads))
    if deviation(factor * grads, clipped) > TIGHT:
        return
    right_factor = float(grads @ wanted / (grads @ grads))
    extra = limit / factor - norm
    if factor == 1:
        text = "clip: gradients are not clipped"
    elif right_factor < 1 and abs(extra) < 1e-3 * norm:
        text = f"clip: {extra:.3g} is added to the norm, where the reference adds nothing"
    else:
        text = f"clip: gradients scaled by {factor:.6g}, in the reference by {right_factor:.6g}"
    yield Cause(text, "scale by min(1, limit / norm)", deviation(factor * grads, clipped))


def different_moments(right: Update, wrong: Update) -> Iterator[Cause]:
    """m = b m0 + (1 - b) g, and v the same of g^2: b solved, then what is left of g."""
    g, p = _flat(right.clipped), _flat(right.before)
    m0, v0 = _flat(right.m0), _flat(right.v0)
    ours = _beta(_flat(right.m), m0, g), _beta(_flat(right.v), v0, g * g)
    theirs = _beta(_flat(wrong.m), m0, g), _beta(_flat(wrong.v), v0, g * g)
    solved = True
    for i, name in enumerate(("beta1", "beta2")):
        solved &= theirs[i][1] <= TIGHT
        if theirs[i][1] <= TIGHT and abs(theirs[i][0] - ours[i][0]) > 1e-9:
            text = f"{name} {theirs[i][0]:.6g}, where the reference has {ours[i][0]:.6g}"
            yield Cause(text, f"set {name}={ours[i][0]:.6g}", theirs[i][1])
    if solved:
        return
    beta = ours[0][0]
    seen = (_flat(wrong.m) - beta * m0) / (1 - beta)
    decayed = np.abs(seen - g) > TIGHT * np.abs(g).max()
    if decayed.any():
        factor = float(p[decayed] @ (seen - g)[decayed] / (p[decayed] @ p[decayed]))
        predicted = np.where(decayed, g + factor * p, g)
        if deviation(predicted, seen) <= TIGHT:
            text = f"decay {factor:.3g} * p is added to the gradient (L2), through both moments"
            yield Cause(text, "decouple it: subtract lr * decay * p", deviation(predicted, seen))


def _beta(new: np.ndarray, old: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """(b, residual) of new = b old + (1 - b) x."""
    beta = float((new - x) @ (old - x) / ((old - x) @ (old - x)))
    return beta, deviation(beta * old + (1 - beta) * x, new)


@dataclass(frozen=True)
class UpdateForm:
    """-step / lr = m^ / (sqrt(v^) + eps) + decay * p, or with eps inside the root."""

    place: str
    eps: float
    rate: float
    decay: float
    residual: float


def different_update(right: Update, wrong: Update) -> dict[str, list[Cause]]:
    """The causes by part: bias_correction, decay, schedule; from moments that agree."""
    betas = _betas(right)
    root = (1 - betas[1] ** right.count) ** 0.5
    found: dict[str, dict[str, tuple[Cause, list[str]]]] = {}
    decays: dict[str, tuple[float, float]] = {}
    for name in _solvable_parameters(right):
        ours = identify_update(right, name, betas)
        theirs = identify_update(wrong, name, betas) if ours else None
        if ours is None or theirs is None:
            continue
        decays[name] = ours.decay, theirs.decay
        for part, cause in _form_causes(ours, theirs, root):
            kind = ".".join(name.split(".")[-2:])
            found.setdefault(part, {}).setdefault(cause.text, (cause, []))[1].append(kind)
    rules = list(_decay_rules(right.before, decays))
    return {
        part: rules * (part == "decay")
        + [
            replace(cause, text=f"{cause.text} (in {', '.join(kinds)})")
            for cause, kinds in causes.values()
        ]
        for part, causes in found.items()
    }


def _decay_rules(before: Named, decays: Mapping[str, tuple[float, float]]) -> Iterator[Cause]:
    """The rule on numbers of axes that says which parameters decay, where there is one."""
    decayed = {name: theirs != 0 for name, (_, theirs) in decays.items()}
    for counted, stacked in (("", False), (", with that of stacked layers", True)):
        axes = {n: before[n].ndim + (stacked and ".layers." in n) for n in decays}
        if {name: count > 1 for name, count in axes.items()} == decayed:
            text = f"decay by the number of axes{counted}: all that has more than one"
            yield Cause(text, "name what decays: weights, but for norms and embeddings", 0.0)


def _betas(right: Update) -> tuple[float, float]:
    g = _flat(right.clipped)
    first = _beta(_flat(right.m), _flat(right.m0), g)[0]
    return first, _beta(_flat(right.v), _flat(right.v0), g * g)[0]


def _solvable_parameters(right: Update) -> list[str]:
    """Parameters with enough values to solve from: the largest of each kind of name."""
    largest: dict[str, str] = {}
    for name, value in right.before.items():
        kind = ".".join(name.split(".")[-2:])
        if value.size >= 8 and value.size > right.before.get(largest.get(kind, ""), value[:0]).size:
            largest[kind] = name
    return list(largest.values())


def _form_causes(ours: UpdateForm, theirs: UpdateForm, root: float) -> Iterator[tuple[str, Cause]]:
    if ours.place != theirs.place:
        text = f"epsilon {theirs.place}, where the reference has it {ours.place}"
        yield "bias_correction", Cause(text, f"put epsilon {ours.place}", theirs.residual)
    elif abs(theirs.eps / ours.eps - 1) > 1e-5:
        if abs(theirs.eps * root / ours.eps - 1) < 1e-5:
            text = "epsilon is added before the bias correction, which enlarges it"
            fix = "add epsilon to sqrt(v / (1 - b2^n))"
        else:
            text = f"epsilon {theirs.eps:.3g}, where the reference has {ours.eps:.3g}"
            fix = f"set eps={ours.eps:.3g}"
        yield "bias_correction", Cause(text, fix, theirs.residual)
    if abs(theirs.decay - ours.decay) > 1e-6:
        text = f"decay {theirs.decay:.3g}, where the reference has {ours.decay:.3g}"
        yield "decay", Cause(text, f"decay these by {ours.decay:.3g}", theirs.residual)
    if abs(theirs.rate / ours.rate - 1) > 1e-6:
        text = f"learning rate {theirs.rate:.6g}, where the reference has {ours.rate:.6g}"
        yield "schedule", Cause(text, f"use {ours.rate:.6g}", theirs.residual)


def identify_update(step: Update, name: str, betas: tuple[float, float]) -> UpdateForm | None:
    """The form of one parameter's update, its epsilon by Gauss-Newton from several starts."""
    m = step.m[name].ravel() / (1 - betas[0] ** step.count)
    v = step.v[name].ravel() / (1 - betas[1] ** step.count)
    p, moved = step.before[name].ravel(), (step.after[name] - step.before[name]).ravel()
    best: UpdateForm | None = None
    for place in ("beside the root", "inside the root"):
        for start in (-12.0, -10.0, -8.0, -6.0, -4.0):
            form = _solve(place, start, m, v, p, moved)
            if form and (best is None or form.residual < 0.1 * best.residual):
                best = form
    return best if best and best.residual <= 1e-8 else None


def _solve(place: str, log_eps: float, m, v, p, moved) -> UpdateForm | None:
    def fit(log_eps: float) -> tuple[np.ndarray, float, float]:
        eps = 10.0**log_eps
        den = np.sqrt(v) + eps if place == "beside the root" else np.sqrt(v + eps)
        matrix = np.stack([-m / den, -p], 1)
        (rate, decay), *_ = np.linalg.lstsq(matrix, moved, rcond=None)
        return matrix @ (rate, decay) - moved, float(rate), float(decay)

    for _ in range(60):
        residual = fit(log_eps)[0]
        slope = (fit(log_eps + 1e-5)[0] - residual) / 1e-5
        square = float(slope @ slope)
        if square == 0:
            break
        change = float(np.clip(-(slope @ residual) / square, -0.5, 0.5))
        log_eps += change
        if abs(change) < 1e-12 or not -20 < log_eps < 0:
            break
    residual, rate, decay = fit(log_eps)
    if rate == 0:
        return None
    size = float(np.linalg.norm(residual) / np.linalg.norm(moved))
    return UpdateForm(place, 10.0**log_eps, rate, round(decay / rate, 8) + 0.0, size)


def different_rates(ours: np.ndarray, theirs: np.ndarray, sizes: Mapping) -> Iterator[Cause]:
    """A sequence of learning rates: moved by some updates, scaled, or its first rate repeated."""
    numbers = {name: x for name, x in sizes.items() if isinstance(x, int | float)}
    for step in (1, 2, -1):
        a, b = (theirs[:-step], ours[step:]) if step > 0 else (theirs[-step:], ours[:step])
        if deviation(a, b) <= TIGHT:
            repeated = (
                " (the first rate is used twice)" if step < 0 and theirs[0] == ours[0] else ""
            )
            text = f"learning rate of update n is that of update n {step:+d}{repeated}"
            yield Cause(text, "count updates from 1", deviation(a, b))
            return
    factor = float(theirs @ ours / (ours @ ours))
    if deviation(factor * ours, theirs) <= TIGHT:
        products = numbers | {
            f"{a} * {b}": numbers[a] * numbers[b] for a in numbers for b in numbers if a < b
        }
        text = f"learning rates are scaled by {describe_constant(factor, products)}"
        yield Cause(text, "remove the factor", deviation(factor * ours, theirs))
        return
