"""Which torch layer each JAX layer is: the map between the two sides' arrays, found."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment

from parity.models.model import JaxModel, TorchModel
from parity.models.trees import floating
from parity.weights.coverage import unread
from parity.weights.groups import fused_pairings, stacks
from parity.weights.jax_units import jax_units
from parity.weights.pairing import Option, Pairing, pair_units
from parity.weights.recurrent import name_gate
from parity.weights.renames import as_torch, rename
from parity.weights.tokens import Words, read_names, similarity
from parity.weights.torch_units import alias_units, torch_units
from parity.weights.units import Unit, singles
from parity.weights.uses import Use
from parity.weights.weight_map import Choice, Entry, WeightMap

# A pairing that costs less leaves no array out.
_WHOLE = 1.0
_IMPOSSIBLE = 1e6
# Another torch layer is an alternative where it fits almost as well.
_NEAR = 0.1
_MOST = 4
# Added to the distance of arrays that do not lie beside each other in the orders of use.
_ASIDE = 0.2
_CELLS = ("LSTM", "GRU", "RNN")


def find_map(
    torch_model: TorchModel,
    jax_model: JaxModel,
    renames: Mapping[str, str] | None = None,
    *,
    torch_uses: Mapping[str, Use] | None = None,
    jax_uses: Mapping[str, Use] | None = None,
) -> WeightMap:
    """The map between two models' arrays, by layers, names, order and shapes.

    Identical names belong together; for the rest the layers are assigned so that the whole costs
    least, where a cost is made of unlike names, another place in the order and arrays left over.

    Args:
        torch_model, jax_model: the two sides.
        renames: JAX names, or patterns of them, to torch's: {"layers_*": "h.*"}.
        torch_uses, jax_uses: what a run of either side does with its arrays, in the order of first
            use (`uses.find_uses`), where it is known; else the order of definition or of calls.
    """
    matcher = _Matcher(torch_model, jax_model, renames or {}, torch_uses, jax_uses)
    matcher.match()
    return matcher.weight_map()


@dataclass(frozen=True)
class _Found:
    """A JAX layer and what it is made of; other torch layers that fit almost as well."""

    pairing: Pairing
    kind: str
    others: tuple[Pairing, ...] = ()
    note: str = ""


class _Matcher:
    def __init__(
        self,
        torch_model: TorchModel,
        jax_model: JaxModel,
        renames: Mapping[str, str],
        torch_uses: Mapping[str, Use] | None,
        jax_uses: Mapping[str, Use] | None,
    ):
        self.torch, self.jax, self.renames = torch_model, jax_model, renames
        self.theirs = _of_floats(torch_units(torch_model, torch_uses), torch_model.arrays)
        self.ours = _of_floats(jax_units(jax_model, jax_uses), jax_model.arrays)
        self.by_use = torch_uses is not None and jax_uses is not None
        self.nameless = False
        self.found: list[_Found] = []
        self.made: dict[str, Option] = {}
        self.read: set[str] = set()

    def match(self) -> None:
        """Whole layers first; then stacked, fused and tied ones; last, arrays one by one."""
        self._match_names()
        self.nameless = self._names_say_nothing()
        if self.nameless:
            self._assign(singles(self.theirs, self._read()), singles(self.ours, self.made))
        self._assign(self.theirs, self.ours)
        self._assign(stacks(self._theirs_left()), self._ours_left())
        for ours, pairing in fused_pairings(self._theirs_left(), self._ours_left()):
            self._keep(pairing, ours.kind)
        self._assign(singles(self.theirs, self._read()), singles(self.ours, self.made))
        tied = alias_units(self.torch)
        self._assign(tied, singles(self.ours, self.made), note="tied in torch, not in JAX")

    def _match_names(self) -> None:
        """Layers of one name; a wrapper's name before all of one side's is no other name."""
        names = {
            unit.path: as_torch(unit.path) if renamed is None else renamed
            for unit in self.ours
            for renamed in (rename(unit.path, self.renames),)
        }
        by_path = {unit.path: unit for unit in self.theirs}
        theirs, ours = _wrappers(list(by_path), list(names.values()))
        for unit in self.ours:
            name = theirs + names[unit.path].removeprefix(ours)
            pairing = pair_units(by_path[name], unit) if name in by_path else None
            if pairing and pairing.cost < _WHOLE:
                self._keep(pairing, unit.kind)

    def _names_say_nothing(self) -> bool:
        """Whether few names share a word with those of the other side: the order of use decides.

        Arrays of a layer that only one side holds as a layer are then arrays like all others.
        """
        theirs, ours = self._theirs_left(), self._ours_left()
        has_cells = any(unit.kind in _CELLS for unit in theirs)
        if not theirs or not ours or not self.by_use or has_cells:
            return False
        their_words, our_words = (read_names(u.path for u in side) for side in (theirs, ours))
        known = frozenset[str]().union(*(w.owner | w.path for w in their_words.values()))
        named = [w for w in our_words.values() if w.automatic or known & (w.owner | w.path)]
        return len(named) < len(our_words) / 2

    def _theirs_left(self) -> list[Unit]:
        return [u for u in self.theirs if not any(slot.name in self.read for slot in u.slots)]

    def _ours_left(self) -> list[Unit]:
        return [u for u in self.ours if not any(slot.name in self.made for slot in u.slots)]

    def _read(self) -> dict[str, None]:
        return dict.fromkeys(self.read)

    def _keep(
        self, pairing: Pairing, kind: str, others: Iterable[Pairing] = (), note: str = ""
    ) -> None:
        self.found.append(_Found(pairing, kind, tuple(others), note))
        self.made |= {name: options[0] for name, options in pairing.options.items()}
        self.read |= pairing.used

    def _assign(self, theirs: Sequence[Unit], ours: Sequence[Unit], note: str = "") -> None:
        """Pair layers that are left so that the sum of the costs is least."""
        theirs = [u for u in theirs if not any(slot.name in self.read for slot in u.slots)]
        ours = [u for u in ours if not any(slot.name in self.made for slot in u.slots)]
        if not theirs or not ours:
            return
        pairings = _pairings(theirs, ours)
        unlike, moved = self._costs(theirs, ours, pairings)
        rows, columns = linear_sum_assignment(unlike + moved)
        for i, j in zip(rows, columns, strict=True):
            if unlike[i, j] < _IMPOSSIBLE:
                near = np.flatnonzero(unlike[:, j] <= unlike[i, j] + _NEAR)
                total = unlike[:, j] + moved[:, j]
                others = sorted((k for k in near if k != i), key=lambda k: total[k])
                kept = [pairings[int(k), int(j)] for k in others[:_MOST]]
                self._keep(pairings[int(i), int(j)], ours[j].kind, kept, note)

    def _costs(
        self,
        theirs: Sequence[Unit],
        ours: Sequence[Unit],
        pairings: Mapping[tuple[int, int], Pairing],
    ) -> tuple[np.ndarray, np.ndarray]:
        """What speaks against each pair of layers: that they are unlike; another place."""
        their_words = read_names(u.path for u in self.theirs) | read_names(u.path for u in theirs)
        our_names = {u.path: rename(u.path, self.renames) or u.path for u in [*self.ours, *ours]}
        our_words = read_names(our_names.values())
        far = _far_in_use(theirs, ours) if self.nameless else _far(theirs, ours)
        alike = np.zeros((len(theirs), len(ours)))
        for i, j in pairings:
            words: Words = our_words[our_names[ours[j].path]]
            alike[i, j] = similarity(words, their_words[theirs[i].path])
        # Names that are like none of the other side's say nothing, their numbers neither.
        told = float(np.clip((alike.max(0).mean() - 0.4) / 0.3, 0.02, 1))
        unlike = np.full(alike.shape, _IMPOSSIBLE)
        moved = np.zeros_like(unlike)
        for (i, j), pairing in pairings.items():
            unlike[i, j] = pairing.cost + told * (1 - alike[i, j])
            moved[i, j] = 0.3 * far[i, j]
        return unlike, moved

    def weight_map(self) -> WeightMap:
        """What was found, with what is not certain and what is left over."""
        usual = self._usual_orders()
        entries: list[Entry] = []
        choices: list[Choice] = []
        for found in self.found:
            mine = []
            for name, options in found.pairing.options.items():
                ranked = _by_usual(options, usual.get((found.kind, name.rpartition("/")[2])))
                mine.append(Entry(name, ranked[0].layout, found.note))
                others = tuple((Entry(name, option.layout),) for option in ranked[1:])
                choices += [Choice((mine[-1],), others)] if others else []
            others = tuple(_entries(pairing) for pairing in found.others)
            choices += [Choice(tuple(mine), others)] if others else []
            entries += mine
        position = {name: i for i, name in enumerate(self.jax.arrays)}
        entries.sort(key=lambda entry: position[entry.jax])
        shapes = {n: a.shape for n, a in self.torch.arrays.items()}
        jax_shapes = {n: a.shape for n, a in self.jax.arrays.items()}
        left = [
            f"{n} {jax_shapes[n]}" for n in jax_shapes if n in self.jax.trainable - set(self.made)
        ]
        layouts = [entry.to_jax for entry in entries]
        kinds = {slot.name: unit.kind for unit in self.theirs for slot in unit.slots}
        missing = unread(layouts, {n: s for n, s in shapes.items() if n in self.torch.trainable})
        missing = [name_gate(text, kinds) for text in missing]
        return WeightMap(entries, shapes, jax_shapes, choices, missing, left)

    def _usual_orders(self) -> dict[tuple[str, str], str]:
        """The order of axes of each class of layer, where the shapes of some of them show it."""
        votes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for found in self.found:
            for name, options in found.pairing.options.items():
                if len(options) == 1 and options[0].order:
                    votes[found.kind, name.rpartition("/")[2]][options[0].order] += 1
        return {key: counted.most_common(1)[0][0] for key, counted in votes.items()}


def _wrappers(theirs: Sequence[str], ours: Sequence[str]) -> tuple[str, str]:
    """The beginnings of the names that most names of the other side do not have."""
    votes = Counter({("", ""): len(set(ours) & set(theirs))})
    for known, names, swap in ((set(ours), theirs, False), (set(theirs), ours, True)):
        for name in names:
            parts = name.split(".")
            for i in range(1, min(len(parts), 4)):
                if ".".join(parts[i:]) in known:
                    prefix = ".".join(parts[:i]) + "."
                    votes["" if swap else prefix, prefix if swap else ""] += 1
    return votes.most_common(1)[0][0]


def _entries(pairing: Pairing) -> tuple[Entry, ...]:
    """The best entry for each array of a layer."""
    return tuple(Entry(name, options[0].layout) for name, options in pairing.options.items())


def _by_usual(options: Sequence[Option], usual: str | None) -> list[Option]:
    return sorted(options, key=lambda option: usual is not None and option.order != usual)


def _of_floats(units: Iterable[Unit], arrays: Mapping[str, np.ndarray]) -> list[Unit]:
    """The layers without arrays of integers: counters, ids and masks are no weights."""
    floats = floating(arrays)
    kept = (replace(u, slots=tuple(s for s in u.slots if s.name in floats)) for u in units)
    return [unit for unit in kept if unit.slots]


def _pairings(theirs: Sequence[Unit], ours: Sequence[Unit]) -> dict[tuple[int, int], Pairing]:
    """Every pair of layers that leaves no array out."""
    found = {}
    for i, torch_unit in enumerate(theirs):
        for j, jax_unit in enumerate(ours):
            pairing = pair_units(torch_unit, jax_unit)
            if pairing and pairing.cost < _WHOLE:
                found[i, j] = pairing
    return found


def _far(theirs: Sequence[Unit], ours: Sequence[Unit]) -> np.ndarray:
    """How far two layers are from each other in the two orders."""
    their_places, our_places = _places(theirs, ours)
    return np.abs(np.subtract.outer(their_places, our_places))


def _places(theirs: Sequence[Unit], ours: Sequence[Unit]) -> tuple[list[float], list[float]]:
    """The place of each layer, from 0 to 1, in the order of those with arrays of the same sizes.

    Where the two sides have another number of these, the place among all layers.
    """
    classes = [_by_sizes(units) for units in (theirs, ours)]
    found = []
    for units, alike in zip((theirs, ours), classes, strict=True):
        ranks = sorted(range(len(units)), key=lambda i: units[i].position)
        places = [0.0] * len(units)
        for rank, i in enumerate(ranks):
            places[i] = rank / max(len(units) - 1, 1)
        for sizes, members in alike.items():
            if all(len(of_side.get(sizes, ())) == len(members) for of_side in classes):
                for rank, i in enumerate(sorted(members, key=lambda i: units[i].position)):
                    places[i] = rank / max(len(members) - 1, 1)
        found.append(places)
    return found[0], found[1]


def _far_in_use(theirs: Sequence[Unit], ours: Sequence[Unit]) -> np.ndarray:
    """How far two arrays are from each other where the two orders of use are laid side by side.

    What only one side uses moves nothing behind it; 0 for what lies beside its like, which follows
    on an array of the same use: the bias of a product and that of a norm are not alike.
    """
    orders = [_in_order_of_use(units) for units in (theirs, ours)]
    tokens = [
        [(_sizes(units[i]), _uses(units[before])) for before, i in pairwise((order[0], *order))]
        for units, order in zip((theirs, ours), orders, strict=True)
    ]
    places = np.zeros(len(theirs)), np.zeros(len(ours))
    far = np.full((len(theirs), len(ours)), _ASIDE)
    for kind, a, b, c, d in SequenceMatcher(None, *tokens, autojunk=False).get_opcodes():
        for side, order, (start, stop) in zip(places, orders, ((a, b), (c, d)), strict=True):
            side[order[start:stop]] = a + c + 2 * np.arange(stop - start)
        if kind == "equal":
            far[orders[0][a:b], orders[1][c:d]] = 0
    return far + np.abs(places[0][:, None] - places[1]) / (len(theirs) + len(ours))


def _in_order_of_use(units: Sequence[Unit]) -> np.ndarray:
    """Their numbers; a layer's bias comes last, as where it is added by another operation."""
    return np.array(
        sorted(
            range(len(units)),
            key=lambda i: (units[i].position, any(slot.use == "bias" for slot in units[i].slots)),
        )
    )


def _uses(unit: Unit) -> tuple[str, ...]:
    return tuple(slot.use for slot in unit.slots)


def _by_sizes(units: Sequence[Unit]) -> dict[tuple[tuple[int, str], ...], list[int]]:
    """The layers by the sizes of their arrays, and by what a run does with them."""
    alike: dict[tuple[tuple[int, str], ...], list[int]] = defaultdict(list)
    for i, unit in enumerate(units):
        alike[_sizes(unit)].append(i)
    return alike


def _sizes(unit: Unit) -> tuple[tuple[int, str], ...]:
    return tuple(sorted((int(np.prod(s.shape)), s.use) for s in unit.slots if s.trainable))
