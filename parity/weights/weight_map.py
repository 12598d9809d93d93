"""Which of torch's arrays every array of JAX's is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from parity.observe.settings import NotComparableError
from parity.suggestions import suggest
from parity.weights.layout import Layout, Shape, Summed, read_layout

HEADER = """\
# What every array of JAX's is made of: JAX's name = torch's, and the steps that lay it out.
# Steps: permuted AXES, reshaped SIZES, flipped AXES, part AXIS START:STOP, plus NUMBER;
# joined AXIS (A, B), stacked AXIS (A, B), sum (A, B).
"""


@dataclass(frozen=True)
class Entry:
    """One array of JAX's.

    Args:
        jax: its name.
        to_jax: how it is made of torch's arrays.
        note: what a reader should know of it.
    """

    jax: str
    to_jax: Layout
    note: str = ""

    @property
    def torch(self) -> tuple[str, ...]:
        """The torch arrays that it is made of."""
        return self.to_jax.names()

    def __str__(self) -> str:
        return f"{self.jax} = {self.to_jax}" + (f"  # {self.note}" if self.note else "")


@dataclass(frozen=True)
class Choice:
    """A layer that may be made of several others, or in several layouts.

    Args:
        entries: of its arrays, as the map has them.
        others: in their place, best first.
    """

    entries: tuple[Entry, ...]
    others: tuple[tuple[Entry, ...], ...]


@dataclass
class WeightMap:
    """The map between the arrays of the two sides.

    Args:
        entries: one for each array of JAX's that has a counterpart.
        torch_shapes, jax_shapes: of all arrays of either side.
        choices: the layers that may be made otherwise.
        missing_torch: torch's trainable arrays, whole or in part, that no entry reads.
        missing_jax: JAX's trainable arrays without an entry.
    """

    entries: list[Entry]
    torch_shapes: Mapping[str, Shape]
    jax_shapes: Mapping[str, Shape]
    choices: list[Choice] = field(default_factory=list)
    missing_torch: list[str] = field(default_factory=list)
    missing_jax: list[str] = field(default_factory=list)

    @property
    def alternatives(self) -> dict[str, list[Entry]]:
        """For every array whose entry is not certain: others that fit, best first."""
        found: dict[str, list[Entry]] = {}
        for choice in self.choices:
            for entry in (entry for other in choice.others for entry in other):
                found.setdefault(entry.jax, []).append(entry)
        return found

    def to_jax(self, torch_arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """JAX's arrays that have an entry, from torch's; views where no number moves."""
        return {entry.jax: entry.to_jax.apply(torch_arrays) for entry in self.entries}

    def to_torch(self, jax_arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Torch's arrays that an entry reads, from JAX's.

        Of summed biases the first holds the sum and the others zeros; elements that no array of
        JAX's holds are zero too.
        """
        made: dict[str, np.ndarray] = {}
        filled: set[str] = set()
        for entry in self.entries:
            value = np.asarray(jax_arrays[entry.jax])
            for name in entry.torch:
                made.setdefault(name, np.zeros(self.torch_shapes[name], value.dtype))
            if set(entry.torch) <= filled and not _is_partial(entry):
                # A tied array: the first entry that reads it decides.
                continue
            self._write(entry, value, made)
            filled |= set() if _is_partial(entry) else set(entry.torch)
        return made

    def element_ids(self, entry: Entry) -> dict[str, np.ndarray]:
        """A number for every element of the torch arrays that an entry reads, counted through."""
        ids, start = {}, 0
        for name in entry.torch:
            shape = self.torch_shapes[name]
            size = int(np.prod(shape))
            ids[name] = np.arange(start, start + size).reshape(shape)
            start += size
        return ids

    def _write(self, entry: Entry, value: np.ndarray, made: dict[str, np.ndarray]) -> None:
        """Put an array's numbers where its elements are taken from."""
        ids = self.element_ids(entry)
        zeros = {n: np.zeros(self.torch_shapes[n], value.dtype) for n in entry.torch}
        given = (value - entry.to_jax.apply(zeros)).ravel()
        sources = entry.to_jax.sources(ids).ravel()
        for name, places in ids.items():
            first = int(places.flat[0]) if places.size else 0
            mine = (sources >= first) & (sources < first + places.size)
            made[name].reshape(-1)[sources[mine] - first] = given[mine]

    def to_text(self) -> str:
        """One line an entry, to be read, edited and given back."""
        lines, alternatives = [HEADER], self.alternatives
        for entry in self.entries:
            lines.append(f"{entry}\n")
            lines += [f"#   or {other.to_jax}\n" for other in alternatives.get(entry.jax, ())]
        lines += [f"# without a counterpart: torch's {name}\n" for name in self.missing_torch]
        lines += [f"# without a counterpart: JAX's {name}\n" for name in self.missing_jax]
        return "".join(lines)

    def replaced(self, entries: Sequence[Entry]) -> "WeightMap":
        """The map with these entries in place of those for the same arrays; they are certain."""
        new = {entry.jax: entry for entry in entries}
        kept = [new.pop(entry.jax, entry) for entry in self.entries] + list(new.values())
        given = {entry.jax for entry in entries}
        open_choices = [c for c in self.choices if not given & {entry.jax for entry in c.entries}]
        missing = [name for name in self.missing_jax if name.partition(" ")[0] not in given]
        read = {name for entry in entries for name in entry.torch}
        unread = [name for name in self.missing_torch if name.partition(" ")[0] not in read]
        return WeightMap(kept, self.torch_shapes, self.jax_shapes, open_choices, unread, missing)

    def require_complete(self) -> None:
        """Refuse a map that leaves trainable arrays out.

        Raises:
            NotComparableError: lists them with their shapes, and says what would help.
        """
        if not self.missing_torch and not self.missing_jax:
            return
        sides = (
            ("torch's", self.missing_torch),
            ("JAX's", self.missing_jax),
        )
        told = [f"{side} {_some(names)}" for side, names in sides if names]
        raise NotComparableError(
            f"weights left without a counterpart: {'; '.join(told)}; write the map with --save-map "
            f"FILE, complete it and give it back with --map FILE, or rename layers: --rename "
            f"JAX=TORCH (layers_*=h.*)"
        )


def _is_partial(entry: Entry) -> bool:
    return " part " in str(entry.to_jax) or isinstance(entry.to_jax, Summed)


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def read_map(
    text: str, torch_shapes: Mapping[str, Shape], jax_shapes: Mapping[str, Shape]
) -> list[Entry]:
    """The entries of a map that was saved and perhaps edited.

    Raises:
        NotComparableError: a line cannot be read, names no array, or makes another shape; it names
            the line.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        rule, _, note = line.partition("#")
        if not rule.strip():
            continue
        name, equals, layout = (part.strip() for part in rule.partition(" = "))
        place = f"--map, line {number}"
        if not equals:
            raise NotComparableError(f"{place}: expected JAX_NAME = TORCH_NAME and steps")
        if name not in jax_shapes:
            hint = suggest(name, jax_shapes)
            raise NotComparableError(f"{place}: JAX has no array {name}; {hint}")
        try:
            entry = Entry(name, read_layout(layout), note.strip())
            shape = entry.to_jax.shape(torch_shapes)
        except KeyError as error:
            hint = suggest(error.args[0], torch_shapes)
            raise NotComparableError(f"{place}: torch has no array {error}; {hint}") from None
        except ValueError as error:
            raise NotComparableError(f"{place}: {error}") from None
        if shape != tuple(jax_shapes[name]):
            found = f"this is {shape}, {name} is {tuple(jax_shapes[name])}"
            raise NotComparableError(f"{place}: {found}")
        entries.append(entry)
    return entries
