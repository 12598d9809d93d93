"""Every value of a pair, beside its partner: errors, units in the last place, the verdict."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from parity.judge.errors import FLOAT64_TOLERANCE, gradient_floors, relative_error
from parity.judge.precision import LIBRARY_ROUNDINGS, Roundings, within_tolerance
from parity.judge.precision import rounding_floor as precision_floor
from parity.observe.arrays import is_float
from parity.observe.points import Recording

Key = tuple[str, str]


@dataclass(frozen=True)
class Value:
    """One named value of both sides.

    Args:
        kind: value, gradient, or parameter gradient.
        error: ||torch - flax|| / ||flax||.
        max_error: the largest absolute difference.
        ulps: the largest difference in units of the last place of the larger value.
        truth_errors: of the Flax and of the torch side against float64, in lower precision.
        verdict: equal, different, constant (nothing is compared) or not finite.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    error: float
    max_error: float
    ulps: float
    verdict: str
    truth_errors: tuple[float, float] | None = None


def compare_values(
    flax: Recording, torch_run: Recording, dtype: str, truth: Recording | None = None
) -> Iterator[Value]:
    """Every value and gradient that both sides have, in order of execution."""
    exact = _named(truth) if truth else {}
    ours, theirs = _named(flax), _named(torch_run)
    held = _dtypes(flax), _dtypes(torch_run)
    norms = gradient_floors(flax.gradient_norms())
    chain = _chain(ours)
    for key, value in ours.items():
        if key in theirs and is_float(value) and is_float(theirs[key]):
            scale = norms[key[0]] if key[1] != "value" else 0.0
            allowed = precision_floor(dtype, chain[key])
            dtypes = held[0].get(key[0], dtype), held[1].get(key[0], dtype)
            yield _value(key, (value, theirs[key]), dtypes, scale, exact.get(key), allowed)


def _dtypes(run: Recording) -> dict[str, str]:
    """The dtype of every value under its name; a gradient has that of its value."""
    return {
        name: dtype
        for observed in run.observed.values()
        for name, dtype in zip(observed.array_names(), observed.dtypes, strict=True)
    }


def _chain(values: dict[Key, np.ndarray]) -> dict[Key, Roundings]:
    """How many roundings lead to each value, for code that nobody has counted.

    From one value to the next at most an elementwise library function and a product over the
    largest width there is. Gradients take three times the whole way, those of parameters one more
    for every row that they sum over (`parity.judge.precision`).
    """
    width = max((a.shape[-1] for a in values.values() if a.ndim), default=1)
    rows = max((a.size // a.shape[-1] for (_, k), a in values.items() if k == "value" and a.ndim))
    step, found, way = Roundings(LIBRARY_ROUNDINGS, width), {}, Roundings()
    for key in values:
        if key[1] == "value":
            way = way + step
            found[key] = way
    for key in values:
        if key[1] != "value":
            found[key] = way * 3 + Roundings(rows * (key[1] == "parameter gradient"))
    return found


def _named(run: Recording) -> dict[Key, np.ndarray]:
    """(name, kind) -> array: what modules give back and what is tapped, and all gradients."""
    found = {}
    for observed in run.observed.values():
        for i, (name, array) in enumerate(
            zip(observed.array_names(), observed.arrays, strict=True)
        ):
            if observed.point.kind != "input":
                found[name, "value"] = array
            if i < len(observed.gradients) and observed.gradients[i] is not None:
                found[name, "gradient"] = observed.gradients[i]
    return found | {(n, "parameter gradient"): g for n, g in run.parameter_gradients.items()}


def _value(key, pair, dtypes: tuple[str, str], floor: float, exact, allowed: float) -> Value:
    flax, torch_value = pair
    same = flax.shape == torch_value.shape
    error = relative_error(torch_value, flax, floor)
    ends = (
        (relative_error(flax, exact, floor), relative_error(torch_value, exact, floor))
        if exact is not None
        else None
    )
    gaps = np.abs(flax.astype(np.float64) - torch_value) if same else np.array(np.inf)
    largest = np.maximum(np.abs(flax), np.abs(torch_value)) if same else np.array(1.0)
    return Value(
        name=key[0],
        kind=key[1],
        shapes=(flax.shape, torch_value.shape),
        dtypes=dtypes,
        error=error,
        max_error=float(gaps.max(initial=0.0)),
        ulps=float((gaps / _spacing(largest, dtypes[0])).max(initial=0.0)),
        verdict=_verdict(flax, torch_value, error, ends, allowed),
        truth_errors=ends,
    )


def _verdict(flax, torch_value, error: float, ends, allowed: float) -> str:
    if not (np.isfinite(flax).all() and np.isfinite(torch_value).all()):
        return "not finite"
    if flax.size > 1 and np.ptp(flax) == 0 and np.ptp(torch_value) == 0 and error == 0:
        return "constant"
    if ends is None:
        return "equal" if error <= FLOAT64_TOLERANCE else "different"
    ours, theirs = ends
    both = within_tolerance(ours, theirs, allowed) and within_tolerance(theirs, ours, allowed)
    return "equal" if both else "different"


def _spacing(values: np.ndarray, dtype: str) -> np.ndarray:
    """The distance to the next number of the dtype."""
    info = jnp.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(values, float(info.tiny)).astype(np.float64)))
    return float(info.eps) * 2.0**exponent
