"""Pytrees of arrays: by path, and back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_CELLS = ("LSTMCell", "OptimizedLSTMCell", "GRUCell", "SimpleCell", "LSTM", "VanillaRNN")


@dataclass(frozen=True)
class ArrayTree:
    """A pytree whose arrays have names; every other leaf (a function, a key) stays as it is.

    Args:
        tree: any pytree.
        prefix: set before every name.
    """

    tree: Any
    prefix: str = ""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by path, joined with "/"."""
        return {n: np.asarray(leaf) for n, leaf in self._named().items() if is_numeric(leaf)}

    def filled(self, arrays: Mapping[str, Any]) -> Any:
        """The tree with these arrays in place of its own."""
        leaves = [arrays.get(name, leaf) for name, leaf in self._named().items()]
        return jax.tree.unflatten(jax.tree.structure(self.tree), leaves)

    def _named(self) -> dict[str, Any]:
        keyed = jax.tree_util.tree_flatten_with_path(self.tree)[0]
        return {self.prefix + path_name(path): leaf for path, leaf in keyed}


def path_name(path: tuple[Any, ...]) -> str:
    """The keys of a path joined with "/", without the `.value` of a box around an array."""
    keys = [getattr(k, "key", getattr(k, "name", getattr(k, "idx", k))) for k in path]
    if len(path) > 1 and isinstance(path[-1], jax.tree_util.GetAttrKey) and keys[-1] == "value":
        keys.pop()
    return "/".join(str(key) for key in keys)


def is_numeric(leaf: Any) -> bool:
    """Whether a leaf is an array of numbers: a random key is none."""
    is_array = isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)
    return is_array and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def floating(arrays: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The names of the floating-point ones, bfloat16 too."""
    return frozenset(n for n, array in arrays.items() if jnp.issubdtype(array.dtype, jnp.floating))


def widest(arrays: Mapping[str, Any]) -> Any:
    """The widest floating-point dtype among the arrays; None where there is none."""
    floats = {a.dtype for a in arrays.values() if jnp.issubdtype(a.dtype, jnp.floating)}
    return max(floats, key=lambda dtype: dtype.itemsize, default=None)


def library_class(owner: object, package: str) -> str | None:
    """`linen.Dense` for a class of a library or derived from one; None for a class of its user's.

    Args:
        owner: a layer.
        package: the library's top package, as `flax.linen`, `flax.nnx`, `haiku`, `equinox`.
    """
    for kind in type(owner).__mro__:
        plain = kind.__name__ in ("Module", "Object", "Pytree", "Hashable", "List", "Dict")
        if kind.__module__.startswith(package) and not plain:
            return f"{package.rpartition('.')[2]}.{kind.__name__}"
    return None


def owner_kinds(root: Any, names: Iterable[str], package: str) -> dict[str, str]:
    """For the arrays of a tree of objects: the layer that holds each, where it is a library's.

    The arrays of a recurrent cell's own layers have the cell's kind.
    """
    kinds = {}
    for name in names:
        found, owner = [library_class(root, package) or ""], root
        for key in name.split("/")[:-1]:
            owner = _member(owner, key)
            found.append(library_class(owner, package) or "")
        cells = [kind for kind in found if is_cell(kind)]
        if kind := [found[-1], *cells[:1]][-1]:
            kinds[name] = kind
    return kinds


def by_call(arrays: Iterable[str], called: Mapping[str, str]) -> dict[str, str]:
    """The kind of the layer of every array, in the order in which the layers are called.

    The arrays of a recurrent cell's own layers have the cell's kind.

    Args:
        arrays: names that begin with a collection.
        called: kinds by the path of the layer.
    """
    position = {path: index for index, path in enumerate(called)}
    owners = {name: name.partition("/")[2].rpartition("/")[0] for name in arrays}
    known = [name for name, owner in owners.items() if owner in position]
    known.sort(key=lambda name: position[owners[name]])
    kinds = {}
    for name in known:
        parts = owners[name].split("/")
        above = ["/".join(parts[:i]) for i in range(len(parts))]
        cells = [called[path] for path in above if is_cell(called.get(path, ""))]
        kinds[name] = cells[0] if cells else called[owners[name]]
    return kinds


def is_cell(kind: str) -> bool:
    """Whether a layer is a recurrent cell, which has layers of its own for its gates."""
    return kind.partition(".")[2] in _CELLS


def _member(owner: Any, key: str) -> Any:
    if hasattr(owner, key):
        return getattr(owner, key)
    try:
        return owner[int(key) if key.isdigit() else key]
    except (KeyError, IndexError, TypeError):
        return None
