"""Which array of one side is which of the other, and how its axes lie."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from parity.observe.names import parameter_name
from parity.observe.settings import NotComparableError
from parity.training.record import Named


@dataclass(frozen=True)
class Pairing:
    """Names of jax's arrays with torch's names for them, and the axes of jax's in torch's order."""

    entries: Mapping[str, tuple[str, tuple[int, ...]]]

    def to_torch(self, arrays: Named) -> dict[str, np.ndarray]:
        """jax's arrays under torch's names, laid out as torch has them."""
        return {
            self.entries[n][0]: np.asarray(a).transpose(self.entries[n][1])
            for n, a in arrays.items()
            if n in self.entries
        }

    def to_jax(self, arrays: Named) -> dict[str, np.ndarray]:
        """torch's arrays under jax's names, laid out as jax has them."""
        return {
            n: np.asarray(arrays[torch_name]).transpose(np.argsort(axes))
            for n, (torch_name, axes) in self.entries.items()
            if torch_name in arrays
        }


def pair_arrays(torch: Named, jax: Named, renames: Mapping[str, str], what: str) -> Pairing:
    """Match by given names, by the mapping rule, by content, then by shape in order.

    Raises:
        NotComparableError: an array is left over on a side.
    """
    entries: dict[str, tuple[str, tuple[int, ...]]] = {}
    left = dict(torch)

    def take(name: str, other: str) -> None:
        axes = next(_layouts(jax[name], left[other], name), None)
        if axes is not None:
            entries[name] = other, axes
            del left[other]

    for name in jax:
        for other in (renames.get(name), _by_rule(name), name, name.replace("/", ".")):
            if name not in entries and other in left:
                take(name, str(other))
    for same_content in (True, False):
        for name in [n for n in jax if n not in entries]:
            for other in list(left):
                if name not in entries and _alike(jax[name], left[other], same_content):
                    take(name, other)
    missing = [n for n in jax if n not in entries]
    if missing or left:
        raise NotComparableError(
            f"{what} without a partner: jax {', '.join(missing[:4]) or 'none'}; "
            f"torch {', '.join(list(left)[:4]) or 'none'}; say renames={{'JAX/NAME': 'torch.name'}}"
        )
    return Pairing(entries)


def _by_rule(name: str) -> str:
    path = tuple(name.split("/"))
    leaf = {"mean": "running_mean", "var": "running_var"}.get(path[-1], path[-1])
    path = path[1:] if path[0] in ("params", "batch_stats") else path
    return parameter_name((*path[:-1], leaf)) if path else name


def _alike(a: np.ndarray, b: np.ndarray, content: bool) -> bool:
    if sorted(a.shape) != sorted(b.shape):
        return False
    return not content or (np.ptp(a) > 0 and np.allclose(np.sort(a, None), np.sort(b, None)))


def _layouts(a: np.ndarray, b: np.ndarray, name: str) -> Iterator[tuple[int, ...]]:
    """Orders of a's axes that give b: one with b's numbers first, then the usual for kernels."""
    usual = [tuple(range(a.ndim))]
    if name.endswith("kernel") or a.ndim > 2:
        usual.insert(0, (a.ndim - 1, a.ndim - 2, *range(a.ndim - 2)))
    usual += list(permutations(range(a.ndim))) if a.ndim <= 5 else []
    fitting = [axes for axes in dict.fromkeys(usual) if a.transpose(axes).shape == b.shape]
    if a.size > 1 and np.ptp(a) > 0:
        yield from (x for x in fitting if np.allclose(a.transpose(x), b, rtol=1e-5, atol=1e-8))
    yield from fitting
