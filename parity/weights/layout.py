"""How an array is made of others: an expression that is applied, inverted, printed and read.

params/conv/kernel = conv.weight permuted 2,3,1,0
params/query/kernel = attn.in_proj_weight part 0 0:16 permuted 1,0 reshaped 16,4,4
params/qkv/kernel = joined 0 (q.weight, k.weight, v.weight) permuted 1,0
params/layers/up/kernel = stacked 0 (layers.0.up.weight, layers.1.up.weight) permuted 0,2,1
params/cell/hi/bias = sum (rnn.bias_ih_l0, rnn.bias_hh_l0) part 0 0:6
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Arrays = Mapping[str, np.ndarray]
Shape = tuple[int, ...]


class Layout:
    """An array as it follows from named ones."""

    def parts(self) -> tuple["Layout", ...]:
        """What it is made of directly."""
        raise NotImplementedError

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The array, from those of its parts; a view where NumPy can give one."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """The arrays it is made of, each once, in order."""
        return tuple(dict.fromkeys(n for part in self.parts() for n in part.names()))

    def apply(self, arrays: Arrays) -> np.ndarray:
        """The array itself, from the named ones."""
        return self.combine([part.apply(arrays) for part in self.parts()])

    def sources(self, ids: Arrays) -> np.ndarray:
        """Which element each of its elements is taken from; -1: from none."""
        return self.combine([part.sources(ids) for part in self.parts()])

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """Its shape, from those of the named arrays.

        Raises:
            ValueError: an axis or a size does not fit.
            KeyError: a name is unknown.
        """
        # Arrays of one repeated number take no memory.
        empty = {name: np.broadcast_to(np.float32(0), shapes[name]) for name in self.names()}
        return self.apply(empty).shape


@dataclass(frozen=True)
class Source(Layout):
    """A named array as it is."""

    name: str

    def parts(self) -> tuple[Layout, ...]:
        return ()

    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def apply(self, arrays: Arrays) -> np.ndarray:
        return arrays[self.name]

    def sources(self, ids: Arrays) -> np.ndarray:
        return ids[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Zeros(Layout):
    """What nothing on the other side gives."""

    size: Shape

    def parts(self) -> tuple[Layout, ...]:
        return ()

    def apply(self, arrays: Arrays) -> np.ndarray:
        return np.zeros(self.size, next(iter(arrays.values())).dtype if arrays else None)

    def sources(self, ids: Arrays) -> np.ndarray:
        return np.full(self.size, -1)

    def __str__(self) -> str:
        return f"zeros {_numbers(self.size)}"


@dataclass(frozen=True)
class Step(Layout):
    """One array laid out anew."""

    of: Layout

    def parts(self) -> tuple[Layout, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Permuted(Step):
    """`numpy.transpose`."""

    axes: tuple[int, ...]

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return arrays[0].transpose(self.axes)

    def __str__(self) -> str:
        return f"{self.of} permuted {_numbers(self.axes)}"


@dataclass(frozen=True)
class Reshaped(Step):
    """`numpy.reshape`."""

    size: Shape

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return arrays[0].reshape(self.size)

    def __str__(self) -> str:
        return f"{self.of} reshaped {_numbers(self.size)}"


@dataclass(frozen=True)
class Flipped(Step):
    """`numpy.flip`."""

    axes: tuple[int, ...]

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.flip(arrays[0], self.axes)

    def __str__(self) -> str:
        return f"{self.of} flipped {_numbers(self.axes)}"


@dataclass(frozen=True)
class Part(Step):
    """start:stop along an axis."""

    axis: int
    start: int
    stop: int

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        (array,) = arrays
        if not 0 <= self.start < self.stop <= array.shape[self.axis]:
            found = f"{self.start}:{self.stop} of {array.shape[self.axis]}"
            raise ValueError(f"axis {self.axis} has no part {found}")
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]

    def __str__(self) -> str:
        return f"{self.of} part {self.axis} {self.start}:{self.stop}"


@dataclass(frozen=True)
class Shifted(Step):
    """Every number plus a constant: Haiku's LSTM adds 1 to the forget gate."""

    by: float

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return arrays[0] + arrays[0].dtype.type(self.by)

    def sources(self, ids: Arrays) -> np.ndarray:
        return self.of.sources(ids)

    def __str__(self) -> str:
        return f"{self.of} plus {self.by:g}"


@dataclass(frozen=True)
class Several(Layout):
    """One array of several."""

    items: tuple[Layout, ...]

    def parts(self) -> tuple[Layout, ...]:
        return self.items

    def _listed(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Joined(Several):
    """`numpy.concatenate`."""

    axis: int

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays, self.axis)

    def __str__(self) -> str:
        return f"joined {self.axis} {self._listed()}"


@dataclass(frozen=True)
class Stacked(Several):
    """`numpy.stack`: the layers of a scan."""

    axis: int

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(arrays, self.axis)

    def __str__(self) -> str:
        return f"stacked {self.axis} {self._listed()}"


@dataclass(frozen=True)
class Summed(Several):
    """One array in place of several that are only ever added: two biases of a recurrent layer.

    Backward the first gets the sum and the others zeros.
    """

    def combine(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return sum(arrays[1:], start=arrays[0])

    def sources(self, ids: Arrays) -> np.ndarray:
        return self.items[0].sources(ids)

    def __str__(self) -> str:
        return f"sum {self._listed()}"


def permuted(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout with its axes in another order; itself where the order is the same."""
    axes = tuple(axes)
    return layout if axes == tuple(range(len(axes))) else Permuted(layout, axes)


def reshaped(layout: Layout, before: Shape, after: Shape) -> Layout:
    """The layout of shape `before` in shape `after`; itself where they are the same."""
    return layout if before == after else Reshaped(layout, after)


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "()"


def read_layout(text: str) -> Layout:
    """A layout from its text.

    Raises:
        ValueError: says what was expected and where.
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str):
        # A comma is a word of its own between items; inside `1,0` it is not.
        self.words = re.findall(r"\(\)|[()]|,(?=\s)|(?:,(?!\s)|[^\s(),])+", text)[::-1]
        self.text = text

    def read(self) -> Layout:
        layout = self._layout()
        if self.words:
            raise ValueError(f"{self.text!r}: {self.words[-1]!r} is not expected there")
        return layout

    def _next(self, expected: str = "") -> str:
        word = self.words.pop() if self.words else "the end"
        if expected and word != expected:
            raise ValueError(f"{self.text!r}: expected {expected!r}, found {word!r}")
        return word

    def _layout(self) -> Layout:
        layout = self._whole(self._next())
        while self.words and self.words[-1] not in (")", ","):
            layout = self._step(layout, self._next())
        return layout

    def _whole(self, word: str) -> Layout:
        following = self.words[-1] if self.words else ""
        after = self.words[-2] if len(self.words) > 1 else ""
        if word in ("joined", "stacked") and after == "(":
            axis = self._integers()[0]
            return (Joined if word == "joined" else Stacked)(self._items(), axis)
        if word == "sum" and following == "(":
            return Summed(self._items())
        if word == "zeros" and re.fullmatch(r"[\d,]+|\(\)", following):
            return Zeros(self._integers())
        return Source(word)

    def _items(self) -> tuple[Layout, ...]:
        self._next("(")
        items = [self._layout()]
        while self.words and self.words[-1] == ",":
            self._next()
            items.append(self._layout())
        self._next(")")
        return tuple(items)

    def _step(self, layout: Layout, word: str) -> Layout:
        match word:
            case "permuted":
                return Permuted(layout, self._integers())
            case "reshaped":
                return Reshaped(layout, self._integers())
            case "flipped":
                return Flipped(layout, self._integers())
            case "plus":
                return Shifted(layout, float(self._next()))
            case "part":
                axis, (start, _, stop) = self._integers()[0], self._next().partition(":")
                return Part(layout, axis, int(start), int(stop))
        known = "permuted, reshaped, flipped, part, plus"
        raise ValueError(f"{self.text!r}: no step {word!r}; one of {known}")

    def _integers(self) -> tuple[int, ...]:
        word = self._next()
        return () if word == "()" else tuple(int(n) for n in word.split(","))
