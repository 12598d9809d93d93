"""How a family's checkpoints store the parameters of one model; converted both ways."""

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
    """A tensor that repeats another, `original`.

    A checkpoint may hold it beside the original, bit for bit the same, or instead of it. It is
    `written` where a program that opens the checkpoint would miss it.
    """

    theirs: str
    original: str
    written: bool = False


class Layout:
    """Which tensors hold which parameters.

    Args:
        family: its name, for errors.
        config: the model.
        tables: the layouts that are read; the first is also written.
        copies: tensors that repeat others.
        prefix: what names may begin with or lack, depending on the class that was saved.
        ignored: patterns of the names of tensors that are not parameters.

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
        if unplaced := [name for name in self._shapes if name not in placed]:
            raise ConfigError(f"{family}: has no place for {', '.join(unplaced)}")

    def their_shapes(self) -> dict[str, Shape]:
        """Name -> shape of every tensor that is written."""
        return dict(self._with_copies(self._shapes_of(self._links).items()))

    def canonical(self, names: Iterable[str]) -> dict[str, str]:
        """Canonical -> stored name, without the tensors that are known to be no parameters.

        Raises:
            CheckpointError: two stored names stand for one tensor.
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
            if copy.original not in found and copy.theirs in found:
                found[copy.original] = found.pop(copy.theirs)
        return found

    def to_ours(self, tensors: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
        """Convert tensors, by canonical name, to pairs (our name, array), one after the other.

        Each tensor has a `shape`, and a `read()` that is called when its array is needed.

        Raises:
            CheckpointError: tensors are missing, unknown or of another shape (all are named), or a
                copy differs from its original.
        """
        links = min(
            self._readable, key=lambda links: _num_unmatched(self._shapes_of(links), tensors)
        )
        shapes = self._shapes_of(links)
        copies = [copy for copy in self._copies if copy.theirs in tensors]
        self._check(tensors, shapes | {copy.theirs: shapes[copy.original] for copy in copies})
        for copy in copies:
            if not _same_bits(tensors[copy.theirs].read(), tensors[copy.original].read()):
                raise CheckpointError(
                    f"{self._family}: {copy.theirs} differs from {copy.original}; by the config it "
                    "must be a copy of it (tie_word_embeddings)"
                )
        return self._read(links, tensors)

    def to_theirs(self, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Convert arrays, by our name, to pairs (their name, array), one after the other.

        Raises:
            CheckpointError: arrays are missing, unknown or of another shape (all are named).
        """
        self._check(arrays, self._shapes)
        return self._with_copies(self._write(arrays))

    def _canonical(self, stored: str) -> str:
        modern = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", stored))
        prefix = self._prefix
        for name in (stored, modern):
            for spelling in (name, prefix + name, name.removeprefix(prefix)):
                if spelling in self._known:
                    return spelling
        return stored

    def _shapes_of(self, links: Iterable[Link]) -> dict[str, Shape]:
        return {
            name: shape
            for link in links
            for name, shape in zip(
                link.theirs,
                link.relation.their_shapes([self._shapes[n] for n in link.ours], len(link.theirs)),
                strict=True,
            )
        }

    def _with_copies(self, pairs: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
        """The pairs, each also under the names of its written copies."""
        for name, value in pairs:
            yield name, value
            for copy in self._copies:
                if copy.written and copy.original == name:
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
            arrays = self._check_one_dtype(link.theirs, [tensors[n].read() for n in link.theirs])
            ours = link.relation.to_ours(arrays, [self._shapes[n] for n in link.ours])
            yield from zip(link.ours, map(np.ascontiguousarray, ours), strict=True)

    def _write(self, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        for link in self._links:
            ours = self._check_one_dtype(link.ours, [arrays[n] for n in link.ours])
            theirs = link.relation.to_theirs(ours)
            yield from zip(link.theirs, map(np.ascontiguousarray, theirs), strict=True)

    def _check_one_dtype(self, names: Sequence[str], arrays: list[np.ndarray]) -> list[np.ndarray]:
        if len({array.dtype for array in arrays}) > 1:
            found = ", ".join(f"{n} {a.dtype}" for n, a in zip(names, arrays, strict=True))
            raise CheckpointError(
                f"{self._family}: tensors that are fused must have the same dtype: {found}"
            )
        return arrays


def _num_unmatched(shapes: Collection[str], tensors: Collection[str]) -> int:
    return len(set(shapes) ^ set(tensors))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype:
        return False
    first, second = (np.ascontiguousarray(array).view(np.uint8) for array in (a, b))
    return np.array_equal(first, second)
