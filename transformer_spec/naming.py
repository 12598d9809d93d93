"""The rule by which a Linen parameter tree and a torch state dict hold the same parameters.

1. Join the Linen path with dots.
2. A trailing `_<n>` becomes `.<n>`: Linen names the items of a list `layers_0`.
3. The leaf: `kernel` -> `weight`, transposed ([in, out] -> [out, in]); `embedding` and `scale` ->
   `weight`; all else keeps its name.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_LEAVES = {"kernel": "weight", "embedding": "weight", "scale": "weight"}


def module_name(path: tuple[str, ...]) -> str:
    """The torch name of a Linen module's path."""
    return ".".join(re.sub(r"_(\d+)$", r".\1", name) for name in path)


def linen_path(name: str) -> tuple[str, ...]:
    """The inverse of `module_name`."""
    return tuple(re.sub(r"\.(\d+)(?=\.|$)", r"_\1", name).split("."))


def dotted(path: tuple[str, ...]) -> str:
    """The torch name of a Linen parameter's path."""
    *modules, leaf = path
    return ".".join([*filter(None, [module_name(tuple(modules))]), _LEAVES.get(leaf, leaf)])


def walk(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple, Any]]:
    """The (path, leaf) pairs of a nested mapping."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from walk(value, (*path, key))
        else:
            yield (*path, key), value


def to_other_layout(path: tuple[str, ...], array: Any) -> Any:
    """A leaf in the other framework's layout: a kernel is transposed; its own inverse."""
    return array.swapaxes(-1, -2) if path[-1] == "kernel" else array


def to_named(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A Linen parameter tree as torch-style named arrays."""
    return {dotted(path): to_other_layout(path, leaf) for path, leaf in walk(tree)}


def named_shapes(tree: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Torch-style names and shapes of a Linen tree, whose leaves need no more than a shape."""
    shapes = {path: tuple(leaf.shape) for path, leaf in walk(tree)}
    return {
        dotted(path): (*shape[:-2], shape[-1], shape[-2]) if path[-1] == "kernel" else shape
        for path, shape in shapes.items()
    }


def from_named(named: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Named arrays as a tree of the template's structure.

    Raises:
        ValueError: a name is missing or unexpected, or its array has another shape; all are listed.
    """
    check_named(named, named_shapes(template))

    def build(tree: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        return {
            key: build(value, (*path, key))
            if isinstance(value, Mapping)
            else to_other_layout((*path, key), named[dotted((*path, key))])
            for key, value in tree.items()
        }

    return build(template, ())


def check_named(named: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse named arrays whose names or shapes are not exactly the given ones."""
    faults = [f"missing {name} {tuple(shapes[name])}" for name in shapes if name not in named]
    faults += [f"unexpected {name}" for name in named if name not in shapes]
    faults += [
        f"{name} has shape {tuple(named[name].shape)}, not {tuple(shape)}"
        for name, shape in shapes.items()
        if name in named and tuple(named[name].shape) != tuple(shape)
    ]
    if faults:
        raise ValueError("parameters do not match: " + "; ".join(faults))
