"""The mapping rule: by which names a Linen module and a torch module hold the same parameters.

1. Join the Linen path with dots.
2. A trailing `_<n>` becomes `.<n>`: Linen names the items of a list `layers_0`.
3. The leaf: `kernel` -> `weight`, transposed ([in, out] -> [out, in]); `embedding` and `scale` ->
   `weight`; all else keeps its name.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]
Shape = tuple[int, ...]

_LEAVES = {"kernel": "weight", "embedding": "weight", "scale": "weight"}


def module_name(path: Path) -> str:
    """The torch name of a Linen module's path."""
    return ".".join(re.sub(r"_(\d+)$", r".\1", name) for name in path)


def parameter_name(path: Path) -> str:
    """The torch name of a Linen parameter's path."""
    *modules, leaf = path
    return ".".join([*filter(None, [module_name(tuple(modules))]), _LEAVES.get(leaf, leaf)])


def to_named(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A Linen parameter tree as arrays under torch's names, laid out as torch has them."""
    return {parameter_name(path): _transposed(path, leaf) for path, leaf in _leaves(tree)}


def named_shapes(tree: Mapping[str, Any]) -> dict[str, Shape]:
    """Torch's names and shapes of a Linen tree, whose leaves need no more than a shape."""
    shapes = {path: tuple(leaf.shape) for path, leaf in _leaves(tree)}
    return {
        parameter_name(path): (*shape[:-2], shape[-1], shape[-2]) if path[-1] == "kernel" else shape
        for path, shape in shapes.items()
    }


def from_named(named: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays under torch's names as a Linen tree of the template's structure.

    Raises:
        ValueError: a name is missing, left over, or its array has another shape; all are listed.
    """
    check_named(named, named_shapes(template))

    def build(tree: Mapping[str, Any], path: Path) -> dict[str, Any]:
        return {
            key: build(value, (*path, key))
            if isinstance(value, Mapping)
            else _transposed((*path, key), named[parameter_name((*path, key))])
            for key, value in tree.items()
        }

    return build(template, ())


def check_named(named: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
    """Refuse arrays whose names or shapes are not exactly the given ones.

    Raises:
        ValueError: lists every fault.
    """
    faults = [f"missing {name} {tuple(shapes[name])}" for name in shapes if name not in named]
    faults += [f"unexpected {name}" for name in named if name not in shapes]
    faults += [
        f"{name} has shape {tuple(named[name].shape)}, not {tuple(shape)}"
        for name, shape in shapes.items()
        if name in named and tuple(named[name].shape) != tuple(shape)
    ]
    if faults:
        raise ValueError("parameters do not match: " + "; ".join(faults))


def _leaves(tree: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _transposed(path: Path, array: Any) -> Any:
    """A leaf as the other framework lays it out; its own inverse."""
    return array.swapaxes(-1, -2) if path[-1] == "kernel" else array
