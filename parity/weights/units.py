"""Layers of either side as arrays with roles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from parity.weights.layout import Layout, Shape, Source

Role = Literal["matrix", "conv", "conv_transpose", "table", "scale", "bias", "mean", "var", "array"]


@dataclass(frozen=True)
class Slot:
    """One array of a layer.

    Args:
        name: of the array.
        role: what the layer does with it; "array": unknown.
        layout: torch's array in the common order: a matrix [in, out], a convolution's kernel
            [*space, in, out]. JAX's array as it is.
        shape: of that layout.
        trainable: whether gradients are taken of it.
        order: what is known of JAX's axes: see `jax_units`; "" where nothing is.
        use: what a run does with it, in the words of `uses.Use.role`; "" where that is not known.
        axes: of JAX's array, the order of axes in which a run multiplies by it, [*in, *out]; ()
            where that is not known.
    """

    name: str
    role: Role
    layout: Layout
    shape: Shape
    trainable: bool = True
    order: str = ""
    axes: tuple[int, ...] = ()
    use: str = ""


@dataclass(frozen=True)
class Unit:
    """A layer.

    Args:
        path: its name, or the array's where an array belongs to no known layer.
        kind: the class of the layer, or "".
        slots: its arrays.
        position: in the order of use, or of definition.
    """

    path: str
    kind: str
    slots: tuple[Slot, ...]
    position: int = 0


@dataclass(frozen=True)
class Stack(Unit):
    """The same layer of every block of a list, to be one layer with one more axis."""

    items: tuple[Unit, ...] = ()


def leaf_role(leaf: str, ndim: int, owner: str = "") -> Role:
    """The role that an array's own name and rank suggest."""
    if leaf in ("average",):
        leaf = "mean" if "mean" in owner else "var" if "var" in owner else leaf
    if leaf in ("kernel", "w", "W", "weight", "weights"):
        return "matrix" if ndim > 1 else "scale"
    if leaf in ("embedding", "embeddings", "table") and ndim == 2:
        return "table"
    for role, words in _LEAVES.items():
        if leaf in words:
            return role
    return "array"


_LEAVES: dict[Role, tuple[str, ...]] = {
    "scale": ("scale", "gamma", "g"),
    "bias": ("bias", "b", "beta", "offset"),
    "mean": ("mean", "running_mean", "moving_mean"),
    "var": ("var", "running_var", "moving_var", "variance"),
}


def singles(units: Sequence[Unit], used: Mapping[str, object]) -> list[Unit]:
    """A unit for each array that is not used yet, under the name of the array's layer."""
    return [
        replace(unit, slots=(slot,))
        for unit in units
        for slot in unit.slots
        if slot.name not in used
    ]


def bare_slot(name: str, shape: Shape, trainable: bool, role: Role = "array") -> Slot:
    """An array of which nothing but its shape is known."""
    return Slot(name, role, Source(name), shape, trainable)
