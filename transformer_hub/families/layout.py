"""The tensors of one model as a family's checkpoints hold them, to ours and back."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from transformer_hub.errors import CheckpointError
from transformer_hub.families.relations import Link, Shape, Table, expand
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError
from transformer_spec.naming import check_named
from transformer_spec.parameters import parameter_shapes

T = TypeVar("T")


@dataclass(frozen=True)
class Copy:
    """A tensor that repeats the one named `of`.

    A checkpoint may hold it, equal to the last bit, or hold it alone. It is `written` where what
    opens the checkpoint would miss it.
    """

    theirs: str
    of: str
    written: bool = False


class Layout:
    """Which tensors hold which parameters.

    Args:
        family: its name, for errors.
        config: the model.
        tables: the layouts that are read; the first is also written.
        copies: tensors that repeat others.
        prefix: what the names may lack or have in front, by the class that was saved.
        ignored: patterns of names that hold nothing trained.

    Raises:
        ConfigError: the family has no place for some parameter of the model.
    """

    def __init__(
        self,
        family: str,
        config: ModelConfig,
        tables: Sequence[Table],
        copies: Sequence[Copy] = (),
        prefix: str = "",
        ignored: Sequence[str] = (),
    ):
        self._family = family
        self._shapes = parameter_shapes(config)
        layers = max(config.num_layers, config.num_decoder_layers or 0)
        self._readable = [expand(table, self._shapes, layers) for table in tables]
        self._links = self._readable[0]
        self._copies = copies
        self._prefix = prefix
        self._ignored = [re.compile(pattern) for pattern in ignored]
        self._known = {name for links in self._readable for link in links for name in link.theirs}
        self._known |= {copy.theirs for copy in copies}
        placed = {name for link in self._links for name in link.ours}
        if homeless := [name for name in self._shapes if name not in placed]:
            raise ConfigError(f"{family}: has no place for {', '.join(homeless)}")

    def their_shapes(self) -> dict[str, Shape]:
        """Name -> shape of every tensor that is written."""
        return dict(self._repeated(self._stored(self._links).items()))

    def canonical(self, names: Iterable[str]) -> dict[str, str]:
        """Canonical -> stored name. What is known to hold nothing trained is left out.

        Raises:
            CheckpointError: two stored names mean one tensor.
        """
        found: dict[str, str] = {}
        for stored in names:
            name = self._canonical(stored)
            if name not in self._known and any(p.search(stored) for p in self._ignored):
                continue
            if name in found:
                raise CheckpointError(
                    f"{self._family}: {found[name]} and {stored} are both {name}; remove one"
                )
            found[name] = stored
        for copy in self._copies:
            if copy.of not in found and copy.theirs in found:
                found[copy.of] = found.pop(copy.theirs)
        return found

    def to_ours(self, tensors: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
        """(our name, array) one after the other, of tensors by canonical name.

        Each tensor has a `shape`, and a `read()` that is called when its array is asked for.

        Raises:
            CheckpointError: a tensor is missing, unknown or of another shape, all by name, or what
                must be a copy differs from its original.
        """
        links = min(self._readable, key=lambda links: _distance(self._stored(links), tensors))
        shapes = self._stored(links)
        copies = [copy for copy in self._copies if copy.theirs in tensors]
        self._check(tensors, shapes | {copy.theirs: shapes[copy.of] for copy in copies})
        for copy in copies:
            if not _same_bits(tensors[copy.theirs].read(), tensors[copy.of].read()):
                raise CheckpointError(
                    f"{self._family}: {copy.theirs} differs from {copy.of}; by the config it is a "
                    "copy of it (tie_word_embeddings)"
                )
        return self._read(links, tensors)

    def to_theirs(self, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """(their name, array) one after the other, of arrays by our name.

        Raises:
            CheckpointError: an array is missing, unknown or of another shape, all by name.
        """
        self._check(arrays, self._shapes)
        return self._repeated(self._write(arrays))

    def _canonical(self, stored: str) -> str:
        modern = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", stored))
        prefix = self._prefix
        for name in (stored, modern):
            for spelling in (name, prefix + name, name.removeprefix(prefix)):
                if spelling in self._known:
                    return spelling
        return stored

    def _stored(self, links: Iterable[Link]) -> dict[str, Shape]:
        return {
            name: shape
            for link in links
            for name, shape in zip(
                link.theirs,
                link.relation.their_shapes([self._shapes[n] for n in link.ours], len(link.theirs)),
                strict=True,
            )
        }

    def _repeated(self, pairs: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
        """The pairs, and each under the names of its written copies."""
        for name, value in pairs:
            yield name, value
            for copy in self._copies:
                if copy.written and copy.of == name:
                    yield copy.theirs, value

    def _check(self, named: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
        try:
            check_named(named, shapes)
        except ValueError as error:
            raise CheckpointError(f"{self._family}: {error}") from None

    def _read(
        self, links: Iterable[Link], tensors: Mapping[str, Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        for link in links:
            arrays = self._of_one_dtype(link.theirs, [tensors[n].read() for n in link.theirs])
            ours = link.relation.to_ours(arrays, [self._shapes[n] for n in link.ours])
            yield from zip(link.ours, map(np.ascontiguousarray, ours), strict=True)

    def _write(self, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        for link in self._links:
            ours = self._of_one_dtype(link.ours, [arrays[n] for n in link.ours])
            theirs = link.relation.to_theirs(ours)
            yield from zip(link.theirs, map(np.ascontiguousarray, theirs), strict=True)

    def _of_one_dtype(self, names: Sequence[str], arrays: list[np.ndarray]) -> list[np.ndarray]:
        if len({array.dtype for array in arrays}) > 1:
            found = ", ".join(f"{n} {a.dtype}" for n, a in zip(names, arrays, strict=True))
            raise CheckpointError(f"{self._family}: joined tensors must have one dtype: {found}")
        return arrays


def _distance(shapes: Collection[str], tensors: Collection[str]) -> int:
    return len(set(shapes) ^ set(tensors))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype:
        return False
    first, second = (np.ascontiguousarray(array).view(np.uint8) for array in (a, b))
    return np.array_equal(first, second)
