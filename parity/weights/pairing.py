"""How the arrays of a JAX layer are made of those of a torch layer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

from parity.weights.layout import Flipped, Layout, Permuted, Shape, Stacked, permuted, reshaped
from parity.weights.recurrent import pair_cells
from parity.weights.units import Slot, Stack, Unit, leaf_role


@dataclass(frozen=True)
class Option:
    """A way to lay out one array.

    Args:
        layout: of JAX's array, from torch's.
        order: the order of axes that it assumes, in the words of `jax_units`.
        cost: 0 for what the layers say, more for what only the shapes allow.
    """

    layout: Layout
    order: str
    cost: float


@dataclass(frozen=True)
class Pairing:
    """A JAX layer made of a torch layer.

    Args:
        options: for each array of JAX's, best first.
        used: the torch arrays that they read.
        cost: 0 where every array has its counterpart in the expected place.
    """

    options: dict[str, list[Option]]
    used: frozenset[str]
    cost: float


def pair_units(torch_unit: Unit, jax_unit: Unit) -> Pairing | None:
    """The pairing of two layers; None where no array fits."""
    if isinstance(torch_unit, Stack):
        return _pair_stack(torch_unit, jax_unit)
    if torch_unit.kind in ("LSTM", "GRU", "RNN"):
        cells = pair_cells(torch_unit, jax_unit)
        if cells is None:
            return None
        options = {name: [Option(layout, "", 0.0)] for name, layout in cells.items()}
        return Pairing(options, frozenset(slot.name for slot in torch_unit.slots), 0.0)
    free = list(torch_unit.slots)
    found: dict[str, list[Option]] = {}
    used: set[str] = set()
    cost = 0.0
    for slot in jax_unit.slots:
        fits = [(options_of(t, slot), t) for t in free]
        fits = [(options, t) for options, t in fits if options]
        if not fits:
            cost += 1.0 if slot.trainable else 0.3
            continue
        options, chosen = min(fits, key=lambda fit: fit[0][0].cost)
        free.remove(chosen)
        used |= {chosen.name, *chosen.layout.names()}
        found[slot.name] = options
        cost += options[0].cost
    if not found:
        return None
    cost += sum(1.0 for slot in free if slot.trainable)
    return Pairing(found, frozenset(used), cost)


def _pair_stack(stack: Stack, jax_unit: Unit) -> Pairing | None:
    """The pairing with a layer whose arrays have one more axis, of the blocks."""
    ranks = [len(slot.shape) for slot in jax_unit.slots]
    for axis in (*range(max(ranks)), *range(-min(ranks), 0)):
        if pairing := _pair_along(stack, jax_unit, axis):
            return pairing
    return None


def _pair_along(stack: Stack, jax_unit: Unit, axis: int) -> Pairing | None:
    count = len(stack.items)
    if any(len(s.shape) <= axis or s.shape[axis] != count for s in jax_unit.slots):
        return None
    ranks = {slot.name: len(slot.shape) for slot in jax_unit.slots}
    inner = replace(jax_unit, slots=tuple(_without(slot, axis) for slot in jax_unit.slots))
    pairings = [pair_units(item, inner) for item in stack.items]
    first = pairings[0]
    if first is None or first.cost >= 1:
        return None
    options = {}
    for name, alternatives in first.options.items():
        per_item = [p.options[name] for p in pairings if p]
        options[name] = [
            Option(
                Stacked(tuple(o[k].layout for o in per_item), axis % ranks[name]),
                option.order,
                option.cost,
            )
            for k, option in enumerate(alternatives)
        ]
    used = frozenset(name for pairing in pairings if pairing for name in pairing.used)
    return Pairing(options, used, first.cost + (0.1 if axis else 0.0))


def _without(slot: Slot, axis: int) -> Slot:
    axis %= len(slot.shape)
    shape = slot.shape[:axis] + slot.shape[axis + 1 :]
    owner, _, leaf = slot.name.rpartition("/")
    role = slot.role if slot.order else leaf_role(leaf, len(shape), owner)
    return replace(slot, shape=shape, role=role)


def options_of(torch_slot: Slot, jax_slot: Slot) -> list[Option]:
    """Every way to make JAX's array of torch's, best first."""
    if prod(torch_slot.shape) != prod(jax_slot.shape):
        return []
    if jax_slot.axes:
        return _as_used(torch_slot, jax_slot)
    mismatch = _mismatch(torch_slot, jax_slot)
    if mismatch is None:
        return []
    options: list[Option] = []
    for layout, order, cost in _arranged(torch_slot, jax_slot):
        if all(layout != option.layout for option in options):
            options.append(Option(layout, order, mismatch + cost))
    return sorted(options, key=lambda option: option.cost)


def _as_used(torch_slot: Slot, jax_slot: Slot) -> list[Option]:
    """The options of an array whose axes a run has shown."""
    axes = jax_slot.axes
    shape = tuple(jax_slot.shape[axis] for axis in axes)
    back = tuple(sorted(range(len(axes)), key=lambda i: axes[i]))
    options = options_of(torch_slot, replace(jax_slot, shape=shape, axes=(), order="in out"))
    return [replace(o, layout=_plain(permuted(o.layout, back)), order="as used") for o in options]


def _mismatch(torch_slot: Slot, jax_slot: Slot) -> float | None:
    """What it costs that two arrays have other roles; None where that cannot be."""
    ours, theirs = jax_slot.role, torch_slot.role
    if "array" in (ours, theirs) and jax_slot.use and torch_slot.use:
        return 0.0 if jax_slot.use == torch_slot.use else 0.2
    if ours == theirs:
        return 0.0
    if jax_slot.trainable != torch_slot.trainable and "array" not in (ours, theirs):
        return None
    if "array" in (ours, theirs):
        return 0.2
    wide = {"matrix", "conv", "conv_transpose", "table"}
    if {ours, theirs} <= wide:
        if "table" in (ours, theirs):
            return 0.5
        return 0.0 if not jax_slot.order else 0.1
    return None


def _arranged(torch_slot: Slot, jax_slot: Slot) -> Iterator[tuple[Layout, str, float]]:
    """Layouts that give JAX's shape, with the order that each assumes and its cost."""
    layout, shape, target = torch_slot.layout, torch_slot.shape, jax_slot.shape
    match torch_slot.role:
        case "matrix":
            swapped = permuted(layout, (1, 0))
            yield from _if_known(jax_slot, "in out", _split(layout, shape, target), 0.0)
            back = _split(_plain(swapped), shape[::-1], target)
            yield from _if_known(jax_slot, "out in", back, 0.1)
        case "conv" | "conv_transpose":
            yield from _kernels(torch_slot, jax_slot)
        case "table" | "array":
            yield from _anyhow(layout, shape, target)
        case _:
            yield reshaped(layout, shape, target), "", 0.0


def _plain(layout: Layout) -> Layout:
    """Two permutations in a row as one."""
    if isinstance(layout, Permuted) and isinstance(layout.of, Permuted):
        return permuted(layout.of.of, [layout.of.axes[i] for i in layout.axes])
    return layout


def _if_known(
    slot: Slot, order: str, layout: Layout | None, cost: float
) -> Iterator[tuple[Layout, str, float]]:
    """The layout, unless the array is known to have another order."""
    if layout is not None and slot.order in ("", order):
        # Of an array of an unknown layer `weight` is torch's word and torch's order.
        torch_like = not slot.order and slot.name.rpartition("/")[2] == "weight"
        yield layout, order, abs(cost - 0.1) if torch_like else cost


def _split(layout: Layout, shape: Shape, target: Shape) -> Layout | None:
    """A matrix whose either axis may be several: [D, N, H] for [D, N H]."""
    if shape == target:
        return layout
    if any(prod(target[:k]) == shape[0] for k in range(1, len(target))):
        return reshaped(layout, shape, target)
    return None


_ORDERS = {
    # From [*space, in, out]: where each axis comes from; 0 stands for all axes of space.
    "in out": "sio",
    "space out in": "soi",
    "out in space": "ois",
    "in out space": "ios",
    "out space in": "osi",
    "in space out": "iso",
}


def _kernels(torch_slot: Slot, jax_slot: Slot) -> Iterator[tuple[Layout, str, float]]:
    """The kernel of a convolution, [*space, in, out], in every order that gives JAX's shape."""
    shape, target = torch_slot.shape, jax_slot.shape
    space = tuple(range(len(shape) - 2))
    places = {"s": space, "i": (len(shape) - 2,), "o": (len(shape) - 1,)}
    transposed = torch_slot.role == "conv_transpose"
    for rank, (order, letters) in enumerate(_ORDERS.items()):
        axes = tuple(axis for letter in letters for axis in places[letter])
        size = tuple(shape[axis] for axis in axes)
        layout = _plain(permuted(torch_slot.layout, axes))
        for flipped in (True, False) if transposed else (False,):
            said = f"{order} flipped" if flipped else order
            if jax_slot.order not in ("", said) and len(target) == len(shape):
                continue
            at = tuple(i for i, axis in enumerate(axes) if axis in space)
            made = Flipped(layout, at) if flipped else layout
            cost = 0.05 * rank + (0.02 if transposed and not flipped else 0.0)
            if size == target:
                yield made, said, cost
            elif _is_dense(jax_slot, letters) and not transposed:
                # A dense layer over patches.
                folded = [prod(size[:-1]), size[-1]]
                folded = [size[0], prod(size[1:])] if letters[0] == "o" else folded
                if tuple(folded) == target:
                    yield reshaped(made, size, target), said, cost + 0.1


def _is_dense(slot: Slot, letters: str) -> bool:
    """Whether a matrix may hold axes in this order: outputs first, or last, as it is known to."""
    orders = {"in out": letters[-1] == "o", "out in": letters[0] == "o"}
    return len(slot.shape) == 2 and orders.get(slot.order, "o" in (letters[0], letters[-1]))


def _anyhow(layout: Layout, shape: Shape, target: Shape) -> Iterator[tuple[Layout, str, float]]:
    """An array of which only the shape is known."""
    if shape == target:
        yield layout, "same", 0.0
    if len(shape) == len(target) and 2 <= len(shape) <= 5:
        for axes in permutations(range(len(shape))):
            turned = permuted(layout, axes)
            if turned is not layout and tuple(shape[i] for i in axes) == target:
                last_two = axes == (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
                yield _plain(turned), f"{axes}", 0.1 if last_two else 0.2
    elif (squeezed := [n for n in shape if n != 1]) == [n for n in target if n != 1]:
        yield reshaped(layout, shape, target), "same", 0.02 if squeezed else 0.0
    elif len(shape) == 2 and (made := _split(permuted(layout, (1, 0)), shape[::-1], target)):
        yield made, "transposed", 0.1
        if straight := _split(layout, shape, target):
            yield straight, "same", 0.15
    elif len(shape) == 2 and (straight := _split(layout, shape, target)):
        yield straight, "same", 0.1
    else:
        yield reshaped(layout, shape, target), "same", 0.3
