"""An optimizer alone, on gradients made for it: of many sizes, near epsilon and past clipping."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.training.family import Track
from parity.training.record import Loop, Named, Update

# Updates by small gradients, from which the optimizer is identified; then by ones of all sizes.
SMALL, MIXED = 8, 6
COLUMNS = 48
_SMALL_NORM = 1e-2
_NORMS = (30.0, 0.3, 3.0, 1e-2, 300.0, 1.0)
# As much as neighbouring floating-point numbers move an update, many times over.
SAFETY = 32.0
DRAWS = 2


@dataclass(frozen=True)
class Probe:
    """Parameters, and the gradients of every update."""

    parameters: Named
    gradients: Sequence[Named]


def make_probe(shapes: Mapping[str, tuple[int, ...]], updates: int) -> Probe:
    """Values of several sizes, those of gradients spread over seven decades.

    Args:
        updates: how many; after the first 14, gradients stay small.
    """
    rng = np.random.default_rng(37)

    def spread(shape: tuple[int, ...], least: float) -> np.ndarray:
        return rng.normal(size=shape) * 10 ** rng.uniform(least, 0, shape)

    parameters = {n: spread(s, -1.5) for n, s in shapes.items()}
    gradients = []
    for index in range(updates):
        grads = {n: spread(s, -7) for n, s in shapes.items()}
        mixed = SMALL <= index < SMALL + MIXED
        norm = _NORMS[index - SMALL] if mixed else _SMALL_NORM
        factor = norm / global_norm(grads)
        gradients.append({n: g * factor for n, g in grads.items()})
    return Probe(parameters, gradients)


def global_norm(grads: Named) -> float:
    return float(np.sqrt(sum(np.sum(np.square(g)) for g in grads.values())))


def neighbour(probe: Probe, draw: int) -> Probe:
    """The same probe moved by one unit in the last place."""
    rng = np.random.default_rng([draw, 41])
    unit = float(np.finfo(np.float64).eps)

    def moved(arrays: Named) -> dict[str, np.ndarray]:
        return {n: a * (1 + unit * rng.integers(-1, 2, a.shape)) for n, a in arrays.items()}

    return Probe(moved(probe.parameters), [moved(g) for g in probe.gradients])


def measure_floors(loop: Loop, probe: Probe, updates: Sequence[Update]) -> dict[str, np.ndarray]:
    """By array and update: by what norm rounding moves the update of the reference."""
    assert loop.update is not None
    floors = {n: np.zeros(len(updates)) for n in probe.parameters}
    for draw in range(DRAWS):
        moved = neighbour(probe, draw)
        others = loop.update(moved.parameters, moved.gradients)
        for index, (ours, theirs) in enumerate(zip(updates, others, strict=True)):
            for n in floors:
                step = theirs.after[n] - theirs.before[n] - (ours.after[n] - ours.before[n])
                floors[n][index] = max(floors[n][index], float(np.linalg.norm(step)))
    return floors


def differing(
    ours: Sequence[Update], theirs: Sequence[Update], floors: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The arrays whose updates differ by more than rounding, with the largest relative error."""
    found: dict[str, float] = {}
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for n in a.before:
            wanted = a.after[n] - a.before[n]
            gap = float(np.linalg.norm(b.after[n] - b.before[n] - wanted))
            unit = float(np.finfo(np.float64).eps) * float(np.linalg.norm(a.after[n]))
            size = float(np.linalg.norm(wanted))
            if not gap <= SAFETY * floors[n][index] + 4 * unit + 1e-13 * size:
                error = gap / max(size, 1e-300) if np.isfinite(gap) else np.inf
                found[n] = max(found.get(n, 0.0), error)
    return found


def track(updates: Sequence[Update], gradients: Sequence[Named], name: str) -> Track:
    """The record of one array: at most 48 of its values, all updates."""
    size = updates[0].before[name].size
    columns = np.linspace(0, size - 1, min(size, COLUMNS)).astype(int)

    def chosen(arrays: list[np.ndarray]) -> np.ndarray:
        return np.stack([a.ravel()[columns] for a in arrays])

    before = chosen([u.before[name] for u in updates])
    moved = chosen([u.after[name] for u in updates]) - before
    norms = np.array([global_norm(g) for g in gradients])
    own = np.array([float(np.linalg.norm(g[name])) for g in gradients])
    grads = chosen([g[name] for g in gradients])
    known = [u.rates[0] for u in updates if u.rates and u.rates[0]]
    rates = np.array(known) if len(known) == len(updates) else None
    shown = np.broadcast_to(own[:, None], grads.shape)
    return Track(grads, before, moved, norms, shown, rates)


def without_rates(given: Track) -> Track:
    """The record with every update's rate unknown."""
    return replace(given, rates=None)
