"""Fresh parameters of two sides, many times drawn: their distributions, array by array.

Variance, mean and the whole distribution (Kolmogorov and Smirnov's distance) are compared at a
stated rate of false alarms, shared among all tests.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import erf, exp, log, pi, sqrt
from statistics import NormalDist
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from parity.explain.causes.evidence import Cause
from parity.models.failures import JAX_RUNS, TORCH_RUNS, blaming
from parity.models.trees import ArrayTree, floating
from parity.observe import settings
from parity.training.pairing import pair_arrays
from parity.training.result import Finding, TrainingResult

FALSE_ALARMS = 1e-6
FEWEST_VALUES = 20_000
MOST_DRAWS = 400
MOST_VALUES = 200_000
# A normal distribution cut at two standard deviations has this spread of it.
_CUT = sqrt(1 - 4 * exp(-2) / sqrt(2 * pi) / erf(sqrt(2)))
_MATCH = 4.0


@dataclass(frozen=True)
class Distribution:
    """What an array is drawn from.

    Args:
        family: constant, normal, truncated normal, uniform, other.
        std, mean: over all draws.
        largest: the largest absolute value drawn.
        count: how many values were drawn.
    """

    family: str
    std: float
    mean: float
    largest: float
    count: int

    def __str__(self) -> str:
        if self.family == "constant":
            return f"constant {self.mean:.6g}"
        cut = f" cut at {self.largest:.4g}" if self.family == "truncated normal" else ""
        return f"{self.family}{cut}, std {self.std:.4g}"


def initialization(
    torch_factory: Callable[[], Any],
    jax_init: Callable[[jax.Array], Any],
    *,
    seeds: int | None = None,
    renames: Mapping[str, str] | None = None,
    false_alarms: float = FALSE_ALARMS,
) -> TrainingResult:
    """Hold the fresh parameters of a JAX model against those of a torch module.

    Args:
        torch_factory: returns a fresh module, or tensors by name; torch's generator is seeded
            before each call.
        jax_init: (key) to fresh parameters, such as `lambda key: model.init(key, x)`.
        seeds: how often both are called; default: until every array has 20,000 values or 400 times.
        renames: names of jax's arrays to torch's.
        false_alarms: the chance that equal distributions are called different.
    """
    settings.make_comparable()
    with torch.random.fork_rng():
        first = _torch_draw(torch_factory, 0)
        theirs = _jax_draw(jax_init, 0)
        pairing = pair_arrays(first, theirs, renames or {}, "parameters")
        smallest = min(a.size for a in first.values())
        draws = seeds or min(max(-(-FEWEST_VALUES // smallest), 2), MOST_DRAWS)
        right = _pooled(first, (_torch_draw(torch_factory, i) for i in range(1, draws)))
        jitted = jax.jit(jax_init)
        rest = (pairing.to_torch(_jax_draw(jitted, i)) for i in range(1, draws))
        wrong = _pooled(pairing.to_torch(theirs), rest)
    level = false_alarms / (3 * len(right))
    findings, largest = [], 0.0
    for name, ours in right.items():
        cause, error = _compare(ours, wrong[name], first[name].shape, level)
        largest = max(largest, error)
        if cause is not None:
            findings.append(Finding("distribution of fresh values", name, error, [cause]))
    note = f"{draws} draws of each side; chance of a false alarm {false_alarms:g}"
    return TrainingResult(findings, {"standard deviations": largest}, (note,))


def _torch_draw(factory: Callable[[], Any], seed: int) -> dict[str, np.ndarray]:
    torch.manual_seed(seed)
    with blaming(TORCH_RUNS):
        made = factory()
    named = dict(made.named_parameters()) if isinstance(made, nn.Module) else made
    return {n: t.detach().double().numpy(force=True) for n, t in named.items()}


def _jax_draw(init: Callable[[jax.Array], Any], seed: int) -> dict[str, np.ndarray]:
    with blaming(JAX_RUNS):
        made = init(jax.random.key(seed))
    if isinstance(made, Mapping) and "params" in made:
        made = made["params"]
    arrays = ArrayTree(made).arrays()
    names = floating(arrays)
    return {n: np.asarray(a, np.float64) for n, a in arrays.items() if n in names}


def _pooled(
    first: Mapping[str, np.ndarray], rest: Iterator[Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    parts = {name: [array.ravel()] for name, array in first.items()}
    for drawn in rest:
        for name, pool in parts.items():
            if len(pool) * pool[0].size < MOST_VALUES:
                pool.append(drawn[name].ravel())
    return {name: np.concatenate(pool) for name, pool in parts.items()}


def describe(values: np.ndarray) -> Distribution:
    """The family whose fourth moment and bounds a pool of values has; "other" where none has."""
    std, mean = float(values.std()), float(values.mean())
    largest = float(np.abs(values).max())
    n = values.size
    if std <= 1e-12 * max(largest, 1e-300) or std == 0:
        return Distribution("constant", 0.0, mean, largest, n)
    fits = {"normal": _normal(std), "uniform": _uniform(std)}
    fits["truncated normal"] = _truncated(std, largest)
    distances = {family: _distance(values, cdf) for family, cdf in fits.items()}
    limit = 1.7 / sqrt(n)
    bounded = largest / std
    likely = [f for f, d in distances.items() if d <= limit]
    if bounded > 2.6 and "normal" in likely:
        family = "normal"
    elif "uniform" in likely and bounded < 1.8:
        family = "uniform"
    elif "truncated normal" in likely and bounded < 2.6:
        family = "truncated normal"
    else:
        family = "other"
    return Distribution(family, std, mean, largest, n)


Cdf = Callable[[np.ndarray], np.ndarray]


def _phi(x: np.ndarray) -> np.ndarray:
    grid = np.linspace(-9, 9, 1801)
    return np.interp(x, grid, [NormalDist().cdf(t) for t in grid])


def _normal(std: float) -> Cdf:
    return lambda x: _phi(x / std)


def _uniform(std: float) -> Cdf:
    half = std * sqrt(3)
    return lambda x: np.clip((x + half) / (2 * half), 0, 1)


def _truncated(std: float, largest: float) -> Cdf:
    """A normal distribution of unknown width, cut at the largest value, with this spread."""

    def spread(width: float) -> float:
        a = largest / width
        kept = erf(a / sqrt(2))
        return width * sqrt(max(1 - 2 * a * exp(-a * a / 2) / sqrt(2 * pi) / kept, 0.0))

    low, high = std, 50 * std
    for _ in range(80):
        middle = sqrt(low * high)
        low, high = (middle, high) if spread(middle) < std else (low, middle)
    width = low
    edge = float(_phi(np.array(-largest / width)))
    return lambda x: np.clip((_phi(x / width) - edge) / (1 - 2 * edge), 0, 1)


def _distance(values: np.ndarray, cdf: Cdf) -> float:
    ordered = np.sort(values)
    n = ordered.size
    expected = cdf(ordered)
    steps = np.arange(n + 1) / n
    return float(max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max()))


def _compare(
    ours: np.ndarray, theirs: np.ndarray, shape: tuple[int, ...], level: float
) -> tuple[Cause | None, float]:
    right, wrong = describe(ours), describe(theirs)
    error = abs(wrong.std - right.std) / max(right.std, 1e-300) if right.std != wrong.std else 0.0
    if "constant" in (right.family, wrong.family):
        same = right.family == wrong.family and np.isclose(right.mean, wrong.mean, atol=1e-7)
        return (None if same else _cause(right, wrong, shape)), error
    z = NormalDist().inv_cdf(1 - level / 2)
    # The variance of a variance, from fourth moments: no distribution is assumed.
    spreads = [(x - x.mean()) ** 2 for x in (ours, theirs)]
    noise = sqrt(sum(s.var() / s.size for s in spreads))
    moved = abs(spreads[0].mean() - spreads[1].mean()) > z * noise
    shifted = abs(right.mean - wrong.mean) > z * sqrt(
        right.std**2 / right.count + wrong.std**2 / wrong.count
    )
    gap = _two_sample(ours, theirs)
    n, m = ours.size, theirs.size
    reshaped = gap > sqrt(-log(level / 2) / 2 * (n + m) / (n * m))
    if not (moved or shifted or reshaped):
        return None, error
    return _cause(right, wrong, shape), error


def _two_sample(a: np.ndarray, b: np.ndarray) -> float:
    a, b = np.sort(a), np.sort(b)
    both = np.concatenate([a, b])
    left = np.searchsorted(a, both, side="right") / a.size
    right = np.searchsorted(b, both, side="right") / b.size
    return float(np.abs(left - right).max())


def _cause(right: Distribution, wrong: Distribution, shape: tuple[int, ...]) -> Cause:
    text = f"{wrong}; in the reference {right}"
    if "constant" in (right.family, wrong.family):
        return Cause(text, f"initialize it as there: {right}")
    ratio = wrong.std / right.std
    noise = _MATCH * sqrt(0.5 / right.count + 0.5 / wrong.count)

    def near(value: float) -> bool:
        return abs(ratio / value - 1) <= noise

    reasons = []
    if len(shape) >= 2:
        space = int(np.prod(shape[2:]))
        fan_out, fan_in = shape[0] * space, shape[1] * space
        if fan_in != fan_out:
            averaged = (fan_in + fan_out) / 2
            fans = {"fan_in": fan_in, "fan_out": fan_out, "the mean of both fans": averaged}
            reasons += [
                f"it is scaled by {b}, the reference by {a}"
                for a, x in fans.items()
                for b, y in fans.items()
                if a != b and near(sqrt(x / y))
            ]
    families = right.family, wrong.family
    if families == ("normal", "truncated normal") and near(_CUT):
        reasons = ["the normal distribution beneath is the same, cut at two standard deviations"]
    elif families == ("truncated normal", "normal") and near(1 / _CUT):
        reasons = ["the same normal distribution, not cut at two standard deviations as there"]
    elif families == ("truncated normal", "truncated normal") and near(_CUT):
        reasons.append("cut at two standard deviations without dividing by 0.8796")
    elif families == ("truncated normal", "truncated normal") and near(1 / _CUT):
        reasons.append("the reference is cut at two standard deviations without dividing by 0.8796")
    if families[0] == families[1] and not reasons:
        gains = {"sqrt(2)": sqrt(2), "1 / sqrt(2)": sqrt(0.5), "sqrt(3)": sqrt(3)}
        gains |= {"1 / sqrt(3)": sqrt(1 / 3), "2": 2.0, "1 / 2": 0.5}
        gains |= {"sqrt(6)": sqrt(6), "1 / sqrt(6)": sqrt(1 / 6)}
        reasons += [
            f"the gain is {name} of the reference's" for name, x in gains.items() if near(x)
        ]
    if len(reasons) == 1:
        text = f"{text}: {reasons[0]}"
    return Cause(text, f"draw it from {right}")
