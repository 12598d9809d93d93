"""Recurrent cells: torch's stacked gates beside gates of their own, fused ones, one bias or two.

torch holds weight_ih [G H, I], weight_hh [G H, H] and two biases, the gates i f g o of an LSTM and
r z n of a GRU as rows. Where the input's and the state's products are only ever added, other
libraries have one bias, their sum; a GRU's n gate keeps two, as it scales the state's product.
"""

import re
from collections.abc import Mapping, Sequence

from parity.weights.layout import (
    Joined,
    Layout,
    Part,
    Permuted,
    Shape,
    Shifted,
    Source,
    Summed,
    Zeros,
)
from parity.weights.units import Slot, Unit

_GATES = {"LSTM": "ifgo", "GRU": "rzn", "RNN": "t"}
_TOLD = {
    "LSTM": ("input", "forget", "cell", "output"),
    "GRU": ("reset", "update", "new"),
}


def pair_cells(torch_unit: Unit, jax_unit: Unit) -> dict[str, Layout] | None:
    """The layouts of a JAX cell's arrays; None where the cells are of another kind or size."""
    library, _, family = jax_unit.kind.rpartition(".")
    if torch_unit.kind != family or family not in _GATES:
        return None
    if {"weight_ih", "weight_hh"} - {_leaf(slot) for slot in torch_unit.slots}:
        return None
    cell = _Cell(torch_unit)
    made = {}
    # NNX's gate is `if_`, as `if` is a word of Python's.
    biased = {
        slot.name.split("/")[-2].strip("_")
        for slot in jax_unit.slots
        if slot.name.endswith("/bias")
    }
    for slot in jax_unit.slots:
        *_, gate, leaf = "", *slot.name.split("/")
        gate = gate.strip("_")
        if library == "haiku":
            layout = _haiku(cell, family, gate, leaf)
        elif leaf in ("weight_ih", "weight_hh"):
            layout = cell.arrays.get(leaf)
        elif leaf in ("bias", "bias_n") and gate not in biased:
            layout = cell.rows("hh", 2) if leaf == "bias_n" else cell.bias(range(cell.gates), False)
        else:
            layout = _gate(cell, family, gate, leaf, biased)
        if layout is None or _shape(layout, cell.shapes) != slot.shape:
            return None
        made[slot.name] = layout
    return made


def name_gate(rows: str, kinds: Mapping[str, str]) -> str:
    """`bias_hh (15,) rows 10:15` with the gate that these rows belong to.

    Args:
        rows: a name, a shape and perhaps the rows of it.
        kinds: the kind of the layer of every array, by name.
    """
    found = re.fullmatch(r"(\S+) \((\d+).* rows (\d+):(\d+)", rows)
    told = _TOLD.get(kinds.get(found[1], "")) if found else None
    if not found or not told:
        return rows
    width = int(found[2]) // len(told)
    gates = told[int(found[3]) // width : -(-int(found[4]) // width)]
    side = "input" if "_ih" in found[1] else "hidden"
    what = "bias" if "bias" in found[1] else "weight"
    plural = "gates" if len(gates) > 1 else "gate"
    return f"{rows} (the {side} {what} of the {' and '.join(gates)} {plural})"


def _shape(layout: Layout, shapes: Mapping[str, Shape]) -> Shape | None:
    try:
        return layout.shape(shapes)
    except ValueError:
        return None


def _gate(cell: "_Cell", family: str, gate: str, leaf: str, biased: set[str]) -> Layout | None:
    """An array of `ii`, `hf`, ... or of `dense_i`, `dense_h`, which hold all gates at once."""
    side = gate.removeprefix("dense_")[:1]
    letter = gate[1:] if not gate.startswith("dense_") else ""
    if side not in "ih" or not side:
        return None
    gates = [_GATES[family].index(letter)] if letter and letter in _GATES[family] else []
    gates = gates or list(range(cell.gates))
    if leaf == "kernel":
        return Permuted(cell.part(f"weight_{side}h", gates), (1, 0))
    if leaf != "bias":
        return None
    other = {"i": "h", "h": "i"}[side] + gate[1:]
    other = ("dense_h" if side == "i" else "dense_i") if gate.startswith("dense_") else other
    return cell.bias(gates, other in biased, side)


def _haiku(cell: "_Cell", family: str, gate: str, leaf: str) -> Layout | None:
    """Haiku's LSTM has one matrix of [input, state], gates i g f o, and adds 1 to f itself."""
    if family == "LSTM":
        order = [0, 2, 1, 3]
        if leaf == "w":
            rows = [
                Joined((cell.part("weight_ih", [k]), cell.part("weight_hh", [k])), 1) for k in order
            ]
            return Permuted(Joined(tuple(rows), 0), (1, 0))
        biases = [cell.bias([k], False) for k in order]
        biases[2] = Shifted(biases[2], -1.0)
        return Joined(tuple(biases), 0)
    if family == "RNN":
        side = "h" if gate == "linear_1" else "i"
        if leaf == "w":
            return Permuted(cell.part(f"weight_{side}h", [0]), (1, 0))
        return cell.part(f"bias_{side}h", [0])
    return None


class _Cell:
    """Torch's arrays of one layer and direction."""

    def __init__(self, unit: Unit):
        self.family = unit.kind
        self.arrays = {_leaf(slot): slot.layout for slot in unit.slots}
        self.shapes = {slot.name: slot.shape for slot in unit.slots}
        rows, self.width = next(s.shape for s in unit.slots if _leaf(s) == "weight_hh")
        self.gates = rows // self.width

    def part(self, leaf: str, gates: Sequence[int]) -> Layout:
        """The rows of some gates that follow each other; zeros where there is no such bias."""
        count = len(gates)
        if leaf not in self.arrays:
            return Zeros((count * self.width,))
        layout = self.arrays[leaf]
        if count == self.gates:
            return layout
        return Part(layout, 0, gates[0] * self.width, (gates[-1] + 1) * self.width)

    def rows(self, side: str, gate: int) -> Layout:
        return self.part(f"bias_{side}", [gate])

    def bias(self, gates: Sequence[int], both: bool, side: str = "i") -> Layout:
        """The bias of some gates.

        Args:
            gates: which of them.
            both: whether the other side has a bias of its own; else this one is the sum.
            side: "i" or "h".
        """
        own = self.part(f"bias_{side}h", gates)
        other = self.part("bias_hh" if side == "i" else "bias_ih", gates)
        if both or isinstance(other, Zeros):
            return own
        if self.family == "GRU" and gates[-1] == 2:
            # What the state adds to the n gate is scaled: its bias is no part of the sum.
            if len(gates) == 1:
                return own
            rest = Zeros((self.width,))
            other = Joined((self.part("bias_hh", gates[:-1]), rest), 0)
        if isinstance(own, Zeros):
            return other
        return Summed((own, other) if side == "i" else (other, own))


def _leaf(slot: Slot) -> str:
    """weight_ih of weight_ih_l0_reverse."""
    assert isinstance(slot.layout, Source)
    return "_".join(slot.name.rpartition(".")[2].split("_")[:2])
