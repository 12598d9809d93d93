"""Which keys each query may attend to, and what the others are filled with."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from parity.explain.causes.masks import identify_parts
from parity.explain.edits.edit import Proposal, computing, with_output
from parity.explain.edits.search import Search
from parity.explain.edits.words import number, stem
from parity.programs.program import Operation

# Added to a score, or in its place, so little is meant to leave no weight.
_VERY_LOW = -1e3


@dataclass(frozen=True)
class _Mask:
    """scores where allowed, else the fill; or the scores plus the one or the other number.

    Args:
        fill: what stands in the place of the rest, or is added to them; None: it does not show.
        shown: what is added where a query may attend; None: nothing is added anywhere.
    """

    allowed: np.ndarray
    fill: float | None
    shown: float | None = None

    @property
    def is_weak(self) -> bool:
        """Whether what it hides keeps a weight."""
        return self.shown is not None and (self.fill or 0) - self.shown > _VERY_LOW

    def apply(self, scores: torch.Tensor, fill: float = -np.inf) -> torch.Tensor:
        rest = fill if self.fill is None else self.fill
        allowed = torch.tensor(self.allowed)
        if self.shown is None:
            return scores.masked_fill(~allowed, rest)
        shown, rest = (torch.tensor(x, dtype=scores.dtype) for x in (self.shown, rest))
        return scores + torch.where(allowed, shown, rest)

    def agrees(self, other: "_Mask") -> bool:
        return (
            np.array_equal(self.allowed, other.allowed)
            and self.shown == other.shown
            and (self.fill == other.fill or other.fill is None)
        )


@dataclass(frozen=True)
class _Masking:
    """An operation of the base that keeps some scores and buries the others."""

    operation: Operation
    scores: int
    mask: _Mask


def other_masks(search: Search) -> Iterator[Proposal]:
    """Another set of keys, or another number in the place of the rest."""
    maskings = list(_maskings(search))
    sums = list(_sums(search, maskings))
    for first, second in sums:
        yield from _joined(search, first, second)
    summed = {masking.operation.number for pair in sums for masking in pair}
    for masking in (m for m in maskings if m.operation.number not in summed):
        for mask in _target_masks(search, search.array(masking.scores)):
            if masking.mask.agrees(mask):
                continue
            yield from _replaced(search, masking, mask)
            if mask.fill is None and not mask.allowed.all():
                yield from _replaced(search, masking, _Mask(mask.allowed, -np.inf))
    if not maskings:
        yield from _unmasked_base(search)


def _maskings(search: Search) -> Iterator[_Masking]:
    for operation in search.window:
        masked = search.array(operation.outputs[0])
        if masked.dtype.kind != "f" or masked.ndim < 2 or len(operation.inputs) < 2:
            continue
        for scores in operation.inputs:
            held = search.array(scores)
            if held.dtype.kind != "f" or held.shape != masked.shape or scores in search.static:
                continue
            mask = _mask_between(held, masked) or _added_by(search, operation, scores)
            if mask is not None:
                yield _Masking(operation, scores, mask)


def _sums(search: Search, maskings: list[_Masking]) -> Iterator[tuple[_Masking, _Masking]]:
    """Masks that are added one after the other: what both hide lies twice as low."""
    for first in (m for m in maskings if m.mask.shown is not None):
        output = first.operation.outputs[0]
        for operation in search.state.readers.get(output, ()):
            mask = _added_by(search, operation, output)
            if mask is not None:
                yield first, _Masking(operation, output, mask)


def _joined(search: Search, first: _Masking, second: _Masking) -> Iterator[Proposal]:
    fills = first.mask.fill, second.mask.fill
    base = "masks added one after the other, {} and {}".format(*(number(f or 0.0) for f in fills))
    for mask in _target_masks(search, search.array(first.scores)):
        edited = computing(search.program, second.operation, [first.scores], mask.apply)
        yield Proposal([edited], base, f"one mask, {_describe_fill(mask)}")


def _mask_between(held: np.ndarray, masked: np.ndarray) -> _Mask | None:
    allowed = held == masked
    if not allowed.any() or allowed.all():
        return None
    rest = masked[~allowed]
    if np.ptp(rest) == 0 if np.isfinite(rest).all() else np.isneginf(rest).all():
        return _Mask(allowed, float(rest[0]))
    return None


def _added_by(search: Search, operation: Operation, scores: int) -> _Mask | None:
    """A sum of scores and of an array of two numbers, the larger where a query may attend."""
    others = [n for n in operation.inputs if n != scores]
    if stem(operation) != "add" or len(others) != 1:
        return None
    mask = _of_two_numbers(search.array(others[0]), search.array(scores).shape)
    if mask is None or (mask.is_weak and not search.are_scores(scores)):
        return None
    return mask


def _of_two_numbers(added: np.ndarray, shape: tuple[int, ...]) -> _Mask | None:
    if added.dtype.kind != "f" or added.ndim < 2 or np.isnan(added).any():
        return None
    numbers = np.unique(added)
    try:
        whole = np.broadcast_to(added, shape)
    except ValueError:
        return None
    if len(numbers) != 2 or not np.isfinite(numbers[1]):
        return None
    return _Mask(whole == numbers[1], float(numbers[0]), float(numbers[1]))


def _target_masks(search: Search, scores: np.ndarray) -> Iterator[_Mask]:
    """The masks that values in the target's window tell of, and none at all."""
    seen: list[_Mask] = []
    for n in search.target_values:
        for mask in _masks_in(search, n, scores):
            if not any(mask.agrees(other) and other.agrees(mask) for other in seen):
                seen.append(mask)
                yield mask
    yield _Mask(np.ones(scores.shape, bool), None)


def _masks_in(search: Search, n: int, scores: np.ndarray) -> Iterator[_Mask]:
    held = search.target.values[n].array
    if held.dtype == bool:
        yield from _as_allowed(held, scores.shape)
    elif held.dtype.kind == "f":
        added = _of_two_numbers(held, scores.shape)
        if added is not None:
            yield added
        if held.size == scores.size:
            yield from _allowed_by(search, n, scores)


def _as_allowed(held: np.ndarray, shape: tuple[int, ...]) -> Iterator[_Mask]:
    """A boolean mask as it is and negated; the row of a query that may see nothing settles it."""
    try:
        mask = np.broadcast_to(held.reshape(held.shape[-len(shape) :]), shape)
    except ValueError:
        return
    for allowed in (mask, ~mask):
        if allowed.any(-1).all():
            yield _Mask(allowed, None)


def _allowed_by(search: Search, n: int, scores: np.ndarray) -> Iterator[_Mask]:
    for held in search.in_layout_of(n, scores.shape):
        kept = np.isclose(held, scores, search.tolerance, 0)
        if kept.any() and not kept.all():
            rest = held[~kept]
            if np.isneginf(rest).all() or np.ptp(rest) == 0:
                yield _Mask(kept, float(rest[0]))
                return
        weights = held != 0
        if (held >= 0).all() and np.allclose(held.sum(-1), 1) and not weights.all():
            yield _Mask(weights, None)
            return


def _replaced(search: Search, masking: _Masking, mask: _Mask) -> Iterator[Proposal]:
    own = masking.mask
    fill = -np.inf if own.fill is None else own.fill

    def apply(scores: torch.Tensor) -> torch.Tensor:
        return mask.apply(scores, fill)

    edited = computing(search.program, masking.operation, [masking.scores], apply)
    base, target = _texts(search, own, mask)
    yield Proposal([edited], base, target)
    zeroed = list(_zeroed_weights(search, masking, mask))
    if zeroed:
        yield Proposal([edited, *zeroed], base, f"{target}; a query without keys gets zeros")


def _zeroed_weights(search: Search, masking: _Masking, mask: _Mask) -> Iterator[Operation]:
    """The softmax of masked scores, with zeros for queries that may attend to no key."""
    if mask.allowed.any(-1).all():
        return
    allowed = torch.tensor(mask.allowed)
    reached = {masking.operation.outputs[0]}
    for operation in search.window:
        if not any(n in reached for n in operation.inputs):
            continue
        shape = search.array(operation.outputs[0]).shape
        if stem(operation) in ("_softmax", "div") and shape == mask.allowed.shape:
            yield with_output(search.program, operation, lambda w: w.masked_fill(~allowed, 0.0))
            return
        reached.update(operation.outputs)


def _unmasked_base(search: Search) -> Iterator[Proposal]:
    """The target alone masks: scores of the base that it leaves out."""
    for operation in search.window:
        scores = search.array(operation.outputs[0])
        if scores.dtype.kind != "f" or scores.ndim < 2 or operation.outputs[0] in search.static:
            continue
        everything = _Mask(np.ones(scores.shape, bool), None)
        for mask in _target_masks(search, scores):
            if not mask.allowed.all():
                edited = with_output(search.program, operation, mask.apply)
                yield Proposal([edited], *_texts(search, everything, mask))


def _texts(search: Search, base: _Mask, target: _Mask) -> tuple[str, str]:
    """What either side does, told by what they differ in."""
    ends = [_describe_fill(mask) for mask in (base, target)]
    ours, theirs = (_describe(search, mask) for mask in (base, target))
    if np.array_equal(base.allowed, target.allowed) and base.is_weak == target.is_weak:
        return ends[0], ends[1]
    if ours is None or theirs is None or ours == theirs:
        orders = _orders(base.allowed, target.allowed)
        if orders:
            return orders
        if np.array_equal(base.allowed, target.allowed):
            return ends[0], ends[1]
        ours, theirs = (_row_that_differs(m.allowed, base, target) for m in (base, target))
    if None in (base.fill, target.fill) or ends[0] == ends[1] or base.is_weak or target.is_weak:
        return ours, theirs
    return f"{ours}, {ends[0]}", f"{theirs}, {ends[1]}"


def _describe_fill(mask: _Mask) -> str:
    if mask.fill is None:
        return "masked scores left out"
    if mask.shown is None:
        return f"masked scores set to {number(mask.fill)}"
    shown = f" and {number(mask.shown)} to the others" if mask.shown else ""
    return f"{number(mask.fill)} added to masked scores{shown}"


def _orders(base: np.ndarray, target: np.ndarray) -> tuple[str, str] | None:
    """The same masks, given to other rows of the batch or to other heads."""
    known: list[np.ndarray] = []
    texts = []
    for side in (base, target):
        order = []
        for mask in side.reshape(-1, *side.shape[-2:]):
            found = [i for i, other in enumerate(known) if np.array_equal(mask, other)]
            if not found and side is target:
                return None
            if not found:
                known.append(mask)
            order.append(found[0] if found else len(known) - 1)
        texts.append("masks of the batch and its heads in the order " + " ".join(map(str, order)))
    return (texts[0], texts[1]) if len(known) > 1 else None


def _row_that_differs(mask: np.ndarray, base: _Mask, target: _Mask) -> str:
    """The first query that sees other keys."""
    rows = np.argwhere((base.allowed != target.allowed).any(-1))
    first = tuple(rows[0])
    keys = np.flatnonzero(mask[first]).tolist()
    shown = ", ".join(map(str, keys[:12])) + (", ..." if len(keys) > 12 else "")
    return f"query {first[-1]} of row {first[0]} attends to keys {shown or 'none'}"


def _describe(search: Search, mask: _Mask) -> str | None:
    """The allowed set as a conjunction of what masks are made of; None: it is of nothing known."""
    text = _describe_set(search, mask.allowed)
    if not mask.is_weak:
        return text
    shown, fill = number(mask.shown or 0.0), number(mask.fill or 0.0)
    added = f"{shown} and {fill} added to scores, which hides nothing"
    return added if text is None else f"{added} ({text})"


def _describe_set(search: Search, allowed: np.ndarray) -> str | None:
    if allowed.all():
        return "no mask: every query attends to all keys"
    allowed = _without_equal_heads(allowed)
    given = {}
    for name, n in search.program.named("input").items():
        held = search.array(n)
        if held.dtype.kind in "iub" and np.isin(held, (0, 1)).all():
            given[name] = held.astype(bool)
            given[f"{name}, inverted"] = ~held.astype(bool)
            if held.ndim == 2 and held.shape[-1] == allowed.shape[-2]:
                rows = held.astype(bool)[:, None, :, None]
                if np.array_equal(np.broadcast_to(rows, allowed.shape), allowed):
                    return f"queries masked by {name}, and no keys"
    parts = identify_parts(allowed, given)
    if parts is None and (allowed == allowed[:1]).all():
        parts = identify_parts(allowed[:1], given)
    return "attention masked by " + " and ".join(parts) if parts else None


def _without_equal_heads(allowed: np.ndarray) -> np.ndarray:
    """[B, 1, T, S], where the axes between batch and queries all hold the same mask."""
    if allowed.ndim < 3:
        return allowed[None, None]
    flat = allowed.reshape(len(allowed), -1, *allowed.shape[-2:])
    return flat[:, :1] if (flat == flat[:, :1]).all() else flat
