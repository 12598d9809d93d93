"""The layers of a JAX model, whatever library made them.

The order of an array's axes, as `Slot.order` has it: "in out" ([*in, *out] of a dense layer, or
[*space, in, out] of a convolution), "out in", "out in space", "space out in", each perhaps with
"flipped" where the library does not flip a transposed convolution's kernel; "" where it is unknown.
"""

from collections.abc import Mapping
from dataclasses import replace

from parity.models.model import JaxModel
from parity.models.trees import is_cell
from parity.weights.units import Role, Slot, Unit, bare_slot, leaf_role
from parity.weights.uses import Use

_KINDS: dict[str, tuple[Role, str]] = {
    **{
        f"{library}.{name}": ("matrix", "in out")
        for library in ("linen", "nnx", "haiku")
        for name in ("Dense", "DenseGeneral", "Linear", "LinearGeneral")
    },
    **{
        f"{library}.{name}": ("conv", "in out")
        for library in ("linen", "nnx", "haiku")
        for name in ("Conv", "ConvND", "Conv1D", "Conv2D", "Conv3D")
    },
    **{f"{lib}.ConvTranspose": ("conv_transpose", "in out flipped") for lib in ("linen", "nnx")},
    **{f"{lib}.ConvTranspose(transpose_kernel)": ("conv_transpose", "space out in")
       for lib in ("linen", "nnx")},
    "haiku.ConvNDTranspose": ("conv_transpose", "space out in flipped"),
    "equinox.Linear": ("matrix", "out in"),
    "equinox.Conv": ("conv", "out in space"),
    "equinox.ConvTranspose": ("conv_transpose", "out in space flipped"),
}  # fmt: skip


# What tells a cell by the names of its own layers, where no library does.
_GATES = {
    "LSTM": {"ii", "if", "ig", "io", "hi", "hf", "hg", "ho"},
    "GRU": {"ir", "iz", "in", "hr", "hz", "hn"},
    "RNN": {"i", "h"},
}


def jax_units(model: JaxModel, uses: Mapping[str, Use] | None = None) -> list[Unit]:
    """Every array of a JAX model, by layer.

    Args:
        model: the model.
        uses: what a run does with the arrays, in the order of first use, where it is known.
    """
    uses = uses or {}
    order: dict[str, int] = {}
    for name in [*uses, *model.kinds, *model.arrays]:
        order.setdefault(name, len(order))
    collections = any(name.startswith("params/") for name in model.arrays)
    paths = {n: n.partition("/")[2] if collections else n for n in model.arrays}
    cells = _cells(model, paths)
    owners: dict[str, list[Slot]] = {}
    kinds: dict[str, str] = {}
    for name, path in paths.items():
        owner, slot = _slot(model, name, path, uses.get(name, Use()))
        kind = model.kinds.get(name, "")
        if name in cells:
            owner, kind = cells[name]
            slot = replace(slot, role="array")
        owners.setdefault(owner, []).append(slot)
        kinds.setdefault(owner, kind)
    return [
        Unit(owner, kinds[owner], tuple(slots), min(order[slot.name] for slot in slots))
        for owner, slots in owners.items()
    ]


def _slot(model: JaxModel, name: str, path: str, use: Use) -> tuple[str, Slot]:
    """The layer that an array belongs to, and the array."""
    owner, _, leaf = path.rpartition("/")
    shape = model.arrays[name].shape
    role: Role = leaf_role(leaf, len(shape), owner)
    axes = ""
    if role == "matrix" and (known := _KINDS.get(_family(model.kinds.get(name, "")))):
        role, axes = known
    elif leaf == "weight" and model.kinds.get(name) == "equinox.Embedding":
        role = "table"
    if leaf == "average":
        # Haiku keeps statistics in modules below the norm.
        owner = owner.partition("/~/")[0]
    slot = replace(bare_slot(name, shape, name in model.trainable, role), order=axes, use=use.role)
    if use.axes and not axes and role in ("matrix", "array") and len(use.axes) == len(shape):
        used: Role = "array" if use.batch else "matrix"
        slot = replace(slot, role=used, axes=use.axes)
    return (path if role == "array" else owner), slot


def _family(kind: str) -> str:
    """Classes of one layer under one name: equinox.Conv2d is equinox.Conv."""
    library, _, name = kind.partition(".")
    if library == "equinox" and name.startswith("Conv"):
        return f"{library}.{name[:-2] if name.endswith('d') else name}"
    if library == "haiku" and name.startswith("Conv") and name.endswith("Transpose"):
        return "haiku.ConvNDTranspose"
    return kind


def _cells(model: JaxModel, paths: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """For every array of a recurrent cell: the cell's path, and its family behind the library."""
    children: dict[str, dict[str, str]] = {}
    found = {}
    for name, path in paths.items():
        owner = path.rpartition("/")[0]
        above, _, gate = owner.rpartition("/")
        children.setdefault(above, {})[name] = gate
        kind = model.kinds.get(name, "")
        if is_cell(kind):
            # Equinox's cells hold their arrays themselves.
            cell = owner if kind.startswith("equinox.") else above
            found[name] = cell, _cell_family(kind)
    for above, gates in children.items():
        for family, expected in _GATES.items():
            if set(gates.values()) == expected:
                found |= dict.fromkeys(gates, (above, family))
    return found


def _cell_family(kind: str) -> str:
    library, _, name = kind.partition(".")
    family = "LSTM" if "LSTM" in name else "GRU" if "GRU" in name else "RNN"
    return f"haiku.{family}" if library == "haiku" else family
