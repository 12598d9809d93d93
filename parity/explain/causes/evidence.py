"""What is known about one faulty module: what its code read, and what both sides made of it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from parity.observe.points import Observed, Point, Recording, without_call_number

# An explanation holds if it leaves rounding alone: the code between two points is a few operations.
ROUNDING = 1e-11


@dataclass(frozen=True)
class Cause:
    """One explanation of one difference.

    Args:
        text: what the candidate does and what the reference does.
        fix: the one line that would make them equal.
        residual: what the explanation leaves of the difference, norm-wise; None where it was not
            replayed but read off (a call that is missing, a distribution).
    """

    text: str
    fix: str
    residual: float | None = None

    def __str__(self) -> str:
        return self.text if self.residual is None else f"{self.text}: residual {self.residual:.0e}"


@dataclass(frozen=True)
class Computed:
    """One value that the module computed, on both sides from the same given values.

    Args:
        point: where it passed.
        reference, candidate: the two values.
        read: what was given to the module's code before, by name, in order of execution.
    """

    point: Point
    reference: np.ndarray
    candidate: np.ndarray
    read: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Evidence:
    """Everything local to one module.

    Args:
        module: its name.
        inputs: the arrays of its call.
        computed: the values its own code computed.
        params: its own parameters by leaf name.
        inside: those of the modules inside it, by name.
        gradients: (reference, candidate) local gradients, by what they were taken by.
        sizes: numbers a constant may be made of, by name: d_model, head_dim, ...
    """

    module: str
    inputs: list[np.ndarray]
    computed: list[Computed]
    params: Mapping[str, np.ndarray]
    gradients: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    inside: Mapping[str, np.ndarray] = field(default_factory=dict)


Explain = Callable[[Evidence, Computed], Iterable[Cause]]


def deviation(value: np.ndarray, wanted: np.ndarray) -> float:
    """||value - wanted|| / ||wanted||, with NaN where both have NaN counted as equal."""
    if value.shape != wanted.shape:
        return np.inf
    a, b = np.asarray(value, np.float64), np.asarray(wanted, np.float64)
    same = np.isnan(a) & np.isnan(b) | (np.isinf(a) & (a == b))
    a, b = np.where(same, 0.0, a), np.where(same, 0.0, b)
    distance = np.linalg.norm(a - b)
    if not np.isfinite(distance):
        return np.inf
    return float(distance and distance / max(np.linalg.norm(b), np.finfo(float).tiny))


def explains(value: np.ndarray, wanted: np.ndarray) -> bool:
    return deviation(value, wanted) <= ROUNDING


def gather_evidence(
    module: str,
    reference: Recording,
    candidate: Recording,
    params: Mapping[str, np.ndarray],
    sizes: Mapping[str, float],
) -> Evidence:
    """The evidence about `module` from two local runs."""
    read: dict[str, np.ndarray] = {}
    computed: list[Computed] = []
    inputs: list[np.ndarray] = []
    callers = reference.callers()
    for key, observed in reference.observed.items():
        point = observed.point
        is_call = point.kind == "input" and point.name == module
        if is_call:
            inputs = observed.arrays
        elif point.module == module and key in candidate.observed:
            pairs = zip(observed.arrays, candidate.observed[key].arrays, strict=False)
            computed += [Computed(point, a, b, dict(read)) for a, b in pairs]
        own_tap = point.kind == "tap" and point.module == module
        from_child = point.kind == "output" and point.name and callers[point.name] == module
        if is_call or own_tap or (from_child and point.name != module):
            read |= _candidate_alone(observed, candidate.observed.get(key)) | _named(
                point, observed.arrays
            )
    owner = without_call_number(module)
    prefix = f"{owner}." if owner else ""
    inside = {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}
    own = {n: v for n, v in inside.items() if "." not in n}
    below = {n: v for n, v in inside.items() if "." in n}
    grads = _gradients(module, reference, candidate)
    return Evidence(module, inputs, computed, own, grads, sizes, below)


def _named(point: Point, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Arguments under their own names, what a child returned under the child's."""
    short = point.name.rpartition(".")[2]
    names = point.arguments if point.kind == "input" else (short,) * len(arrays)
    return dict(zip(_numbered(names), arrays, strict=True))


def _candidate_alone(ours: Observed, theirs: Observed | None) -> dict[str, np.ndarray]:
    """What the candidate alone is handed."""
    if theirs is None or len(theirs.arrays) <= len(ours.arrays):
        return {}
    return _named(theirs.point, theirs.arrays)


def _numbered(names: Sequence[str]) -> list[str]:
    """Each name; where several are alike, with its number among them."""
    total, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        found.append(name if total[name] == 1 else f"{name}[{seen[name]}]")
        seen[name] += 1
    return found


def _gradients(module: str, reference: Recording, candidate: Recording) -> dict:
    found = {}
    for name, grad in reference.parameter_gradients.items():
        if (
            name.rpartition(".")[0] == without_call_number(module)
            and name in candidate.parameter_gradients
        ):
            found[name.rpartition(".")[2]] = (grad, candidate.parameter_gradients[name])
    key = (module, "input")
    if key in reference.observed and key in candidate.observed:
        pairs = zip(
            reference.observed[key].gradients, candidate.observed[key].gradients, strict=False
        )
        found |= {
            f"input[{i}]": (a, b)
            for i, (a, b) in enumerate(pairs)
            if a is not None and b is not None
        }
    return found
