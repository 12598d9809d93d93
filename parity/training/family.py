"""Optimizers as members of one family: what enters an update where, and by which constants.

    g  = clip(gradient) [+ decay * p]
    m  = beta1 * m + (1 - beta1) * g        (or summed, or of the scaled gradient)
    v  = beta2 * v + (1 - beta2) * g^2      (or summed, or a maximum)
    p -= rate * (m^ / (sqrt(v^) + eps) [+ decay * p])

Adam, AdamW, NAdam, AMSGrad, Adamax, RMSProp, Adagrad, Adadelta, Lion and SGD with momentum are
members.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

Constants = Mapping[str, float]


@dataclass(frozen=True)
class Form:
    """The structure of an update, without its constants.

    Args:
        first: the first moment: an average, a sum (SGD's momentum), a sum weighted by
            1 - beta1 from the second gradient on (torch's dampening), or none.
        second: the moment of squares: an average, a sum (Adagrad), the running maximum of
            Adamax, or none.
        order: whether momentum is taken of gradients or of gradients already divided (RMSProp).
        corrected_first, corrected_second: divided by 1 - beta ** t.
        nesterov: none, the gradient's share corrected as the moment is ("alike"), or each by its
            own step as in NAdam ("ahead").
        epsilon: outside the root, inside it, outside before v is corrected, or as a lower bound.
        decay: none; coupled: added to the gradient (L2); decoupled, times the rate; free of the
            rate; applied after the step, times the rate.
        clip: of gradients: by global norm, by value, by each array's norm, none.
        centered: v minus the square of an average of gradients.
        amsgrad: the largest v so far, of raw or of corrected moments.
        squared: what v averages: gradients with or without the coupled decay, or their distance
            from m (AdaBelief).
        stale: v without the present gradient divides.
        sign: only the sign of the update is used, and beta2 moves the moment (Lion).
        delta: the gradient is scaled by the root mean square of past updates (Adadelta).
        started: v starts from a constant, not from 0.
        counted: bias corrections count from 1, or from 0 or 2.
    """

    first: Literal["none", "average", "sum", "dampened"] = "none"
    second: Literal["none", "average", "sum", "maximum"] = "none"
    order: Literal["before", "after"] = "before"
    corrected_first: bool = False
    corrected_second: bool = False
    nesterov: Literal["none", "alike", "ahead"] = "none"
    epsilon: Literal["outside", "inside", "before correction", "bound", "none"] = "none"
    decay: Literal["none", "coupled", "decoupled", "free", "after"] = "none"
    clip: Literal["none", "norm", "norm, 1e-6 added", "value", "array"] = "none"
    centered: bool = False
    amsgrad: Literal["none", "raw", "corrected"] = "none"
    squared: Literal["all", "without decay", "belief"] = "all"
    stale: bool = False
    sign: bool = False
    delta: bool = False
    started: bool = False
    counted: Literal[0, 1, 2] = 1
    root: bool = True

    def constants(self) -> tuple[str, ...]:
        """The names of the constants that this structure has, besides the rate."""
        has = {
            "beta1": self.first != "none",
            "beta2": self.second in ("average", "maximum") or self.sign,
            "epsilon": self.epsilon != "none",
            "decay": self.decay != "none",
            "start": self.started,
            "limit": self.clip != "none",
        }
        return tuple(name for name, present in has.items() if present)

    def valid(self) -> bool:
        """Whether every part of the structure has something to act on."""
        adaptive, summed = self.second != "none", self.second == "sum"
        # Inside the root, the start of a sum of squares and an epsilon are one number.
        bare = self.epsilon == "none"
        plain = not (
            self.centered or self.stale or self.started or self.amsgrad != "none" or self.delta
        )
        rules = (
            adaptive or (plain and self.epsilon == "none" and self.squared == "all" and self.root),
            adaptive or not self.corrected_second,
            not adaptive or not bare or (summed and self.started),
            not (summed and self.epsilon in ("inside", "bound")),
            self.first == "average" or not self.corrected_first,
            self.second == "average" or not self.corrected_second,
            self.second == "average" or not (self.centered or self.delta),
            self.first != "none" or self.nesterov == "none",
            self.first != "none" or self.order == "before",
            self.corrected_first or self.nesterov != "ahead",
            self.corrected_second or self.epsilon != "before correction",
            self.corrected_second or self.amsgrad != "corrected",
            self.decay == "coupled" or self.squared != "without decay",
            self.first == "average" or self.squared != "belief",
            not self.sign or (self.first == "average" and not adaptive),
            not self.sign or not (self.corrected_first or self.nesterov != "none"),
            self.corrected_first or self.corrected_second or self.counted == 1,
        )
        return all(rules)

    def distance(self, other: "Form") -> int:
        """The number of parts in which two structures differ."""
        return sum(getattr(self, f.name) != getattr(other, f.name) for f in fields(self))


@dataclass(frozen=True)
class Track:
    """Several updates of some parameters, as one side made them.

    Args:
        gradients: [steps, values], as given to the optimizer.
        before: [steps, values], the parameters before each update.
        moved: [steps, values], what each update added.
        norms: [steps], the global norm of all gradients, of those left out here too.
        array_norms: [steps, values], the norm of the array that each value is of.
        rates: [steps], what the learning rate is known to be, up to a factor; None: unknown.
    """

    gradients: np.ndarray
    before: np.ndarray
    moved: np.ndarray
    norms: np.ndarray
    array_norms: np.ndarray
    rates: np.ndarray | None = None

    def first_steps(self, count: int) -> "Track":
        """The same record, cut off."""
        rates = None if self.rates is None else self.rates[:count]
        return Track(
            self.gradients[:count],
            self.before[:count],
            self.moved[:count],
            self.norms[:count],
            self.array_norms[:count],
            rates,
        )

    def chosen(self, columns: np.ndarray) -> "Track":
        """The same record of some values alone."""
        return replace(
            self,
            gradients=self.gradients[:, columns],
            before=self.before[:, columns],
            moved=self.moved[:, columns],
            array_norms=self.array_norms[:, columns],
        )


def directions(form: Form, c: Constants, track: Track) -> np.ndarray:
    """[steps, values]: what the rate multiplies, without decoupled decay."""
    beta1, beta2 = c.get("beta1", 0.0), c.get("beta2", 0.0)
    clipped = _clipped(form, c, track)
    raw = clipped
    if form.decay == "coupled":
        clipped = clipped + c["decay"] * track.before
    m = np.zeros_like(clipped[0])
    v = np.full_like(m, c.get("start", 0.0))
    mean, largest, deltas = np.zeros_like(m), np.zeros_like(m), np.zeros_like(m)
    found = np.empty_like(clipped)
    for index, gradient in enumerate(clipped):
        t = index + form.counted
        x = gradient
        if form.sign:
            found[index] = np.sign(beta1 * m + (1 - beta1) * x)
            m = beta2 * m + (1 - beta2) * x
            continue
        if form.first != "none" and form.order == "before":
            m = _moment(form, m, x, beta1, index)
            x = _looked_ahead(form, m, x, beta1, t)
        if form.second != "none":
            square = raw[index] if form.squared == "without decay" else gradient
            square = (square - m if form.squared == "belief" else square) ** 2
            used = v
            v = _second(form, v, square, beta2, c.get("epsilon", 0.0))
            if not form.stale:
                used = v
            if form.centered:
                mean = beta2 * mean + (1 - beta2) * gradient
                used = used - mean**2
            largest, used = _largest(form, largest, used, beta2, t)
            den = _denominator(form, used, c.get("epsilon", 0.0), beta2, t)
            x = x / den
            if form.delta:
                x = x * np.sqrt(deltas + c["epsilon"])
                deltas = beta2 * deltas + (1 - beta2) * x**2
        if form.first != "none" and form.order == "after":
            m = _moment(form, m, x, beta1, index)
            x = _looked_ahead(form, m, x, beta1, t)
        found[index] = x
    return found


def predict(form: Form, c: Constants, track: Track, rates: np.ndarray, u: np.ndarray) -> np.ndarray:
    """[steps, values]: what the updates add, given their directions."""
    r = rates[:, None]
    match form.decay:
        case "decoupled":
            return -r * (u + c["decay"] * track.before)
        case "free":
            return -r * u - c["decay"] * track.before
        case "after":
            return -r * u - r * c["decay"] * (track.before - r * u)
        case _:
            return -r * u


def _clipped(form: Form, c: Constants, track: Track) -> np.ndarray:
    g = track.gradients
    match form.clip:
        case "norm":
            return g * np.minimum(1, c["limit"] / track.norms)[:, None]
        case "norm, 1e-6 added":
            return g * np.minimum(1, c["limit"] / (track.norms + 1e-6))[:, None]
        case "array":
            return g * np.minimum(1, c["limit"] / track.array_norms)
        case "value":
            return np.clip(g, -c["limit"], c["limit"])
        case _:
            return g


def _moment(form: Form, m: np.ndarray, x: np.ndarray, beta: float, index: int) -> np.ndarray:
    if form.first == "sum" or (form.first == "dampened" and index == 0):
        return beta * m + x
    return beta * m + (1 - beta) * x


def _looked_ahead(form: Form, m: np.ndarray, x: np.ndarray, beta: float, t: int) -> np.ndarray:
    share = 1.0 if form.first == "sum" else 1 - beta
    correct = 1 - beta**t if form.corrected_first else 1.0
    match form.nesterov:
        case "alike":
            return (beta * m + share * x) / _nonzero(correct)
        case "ahead":
            return beta * m / (1 - beta ** (t + 1)) + share * x / _nonzero(correct)
        case _:
            return m / _nonzero(correct)


def _second(
    form: Form, v: np.ndarray, square: np.ndarray, beta: float, epsilon: float
) -> np.ndarray:
    match form.second:
        case "sum":
            return v + square
        case "maximum":
            entering = epsilon if form.epsilon == "inside" else 0.0
            return np.maximum(beta**2 * v, (np.sqrt(square) + entering) ** 2)
        case _:
            return beta * v + (1 - beta) * square


def _largest(
    form: Form, largest: np.ndarray, v: np.ndarray, beta: float, t: int
) -> tuple[np.ndarray, np.ndarray]:
    """The largest v so far, and what of it the root is taken of, corrected."""
    correct = 1 - beta**t if form.corrected_second else 1.0
    if form.epsilon == "before correction":
        correct = 1.0
    v = np.maximum(v, 0.0)
    if form.amsgrad == "raw":
        largest = np.maximum(largest, v)
        return largest, largest / _nonzero(correct)
    if form.amsgrad == "corrected":
        largest = np.maximum(largest, v / _nonzero(correct))
        return largest, largest
    return largest, v / _nonzero(correct)


def _denominator(form: Form, v: np.ndarray, epsilon: float, beta: float, t: int) -> np.ndarray:
    root = np.sqrt if form.root else np.asarray
    if form.second == "maximum" and form.epsilon == "inside":
        return root(v)
    match form.epsilon:
        case "inside":
            return root(v + epsilon)
        case "bound":
            return np.maximum(root(v), epsilon)
        case "before correction":
            return (root(v) + epsilon) / np.sqrt(_nonzero(1 - beta**t))
        case _:
            return root(v) + epsilon


def _nonzero(x: float) -> float:
    return x or 1e-300
