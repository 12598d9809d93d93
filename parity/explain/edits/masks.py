"""Which keys each query may attend to, and what the others are filled with."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from parity.explain.causes.masks import identify_parts
from parity.explain.edits.edit import Proposal, computing, with_output
from parity.explain.edits.search import Search
from parity.explain.edits.words import number
from parity.programs.program import Operation

# Added to a score, or in its place, so little is meant to leave no weight.
_VERY_LOW = -1e3


@dataclass(frozen=True)
class _Masking:
    """scores where allowed, else the fill."""

    operation: Operation
    scores: int
    allowed: np.ndarray
    fill: float


def other_masks(search: Search) -> Iterator[Proposal]:
    """Another set of keys, or another number in the place of the rest."""
    maskings = list(_maskings(search))
    for masking in maskings:
        scores = search.array(masking.scores)
        for allowed, fill in _target_masks(search, scores):
            if np.array_equal(allowed, masking.allowed):
                if fill is not None and fill != masking.fill:
                    yield _filled(search, masking, fill)
                continue
            edited = _masked(search, masking, allowed, masking.fill)
            base, target = (_describe(search, a) for a in (masking.allowed, allowed))
            yield Proposal([edited], base, target)
            if fill is not None and fill != masking.fill:
                texts = (
                    f"{base}, the rest {number(masking.fill)}",
                    f"{target}, the rest {number(fill)}",
                )
                yield Proposal([_masked(search, masking, allowed, fill)], *texts)
    if not maskings:
        yield from _unmasked_base(search)


def _maskings(search: Search) -> Iterator[_Masking]:
    """The operations of the window that keep some scores and bury the others."""
    for operation in search.window:
        masked = search.array(operation.outputs[0])
        if masked.dtype.kind != "f" or masked.ndim < 2 or len(operation.inputs) < 2:
            continue
        for scores in operation.inputs:
            held = search.array(scores)
            if held.dtype.kind != "f" or held.shape != masked.shape or scores in search.static:
                continue
            allowed = held == masked
            if not allowed.any() or allowed.all():
                continue
            rest = masked[~allowed]
            if np.ptp(rest) == 0 if np.isfinite(rest).all() else np.isneginf(rest).all():
                yield _Masking(operation, scores, allowed, float(rest[0]))
            elif (rest - held[~allowed] < _VERY_LOW).all():
                yield _Masking(operation, scores, allowed, -np.inf)


def _target_masks(search: Search, scores: np.ndarray) -> Iterator[tuple[np.ndarray, float | None]]:
    """(allowed, what the rest is filled with where it shows) of values in the target's window."""
    seen = []
    for n in search.target_values:
        held = search.target.values[n].array
        if held.dtype == bool:
            found = _as_allowed(held, scores.shape)
        elif held.dtype.kind == "f" and held.size == scores.size:
            found = _allowed_by(search, n, scores)
        else:
            continue
        for allowed, fill in found:
            if not any(np.array_equal(allowed, a) and fill == f for a, f in seen):
                seen.append((allowed, fill))
                yield allowed, fill
    yield np.ones(scores.shape, bool), None


def _as_allowed(held: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[np.ndarray, None]]:
    """A boolean mask as it is and negated; the row of a query that may see nothing settles it."""
    try:
        mask = np.broadcast_to(held.reshape(held.shape[-len(shape) :]), shape)
    except ValueError:
        return
    for allowed in (mask, ~mask):
        if allowed.any(-1).all():
            yield allowed, None


def _allowed_by(
    search: Search, n: int, scores: np.ndarray
) -> Iterator[tuple[np.ndarray, float | None]]:
    for held in search.in_layout_of(n, scores.shape):
        kept = np.isclose(held, scores, search.tolerance, 0)
        if kept.any() and not kept.all():
            rest = held[~kept]
            if np.isneginf(rest).all() or np.ptp(rest) == 0:
                yield kept, float(rest[0])
                return
        weights = held != 0
        if (held >= 0).all() and np.allclose(held.sum(-1), 1) and not weights.all():
            yield weights, None
            return


def _masked(search: Search, masking: _Masking, allowed: np.ndarray, fill: float) -> Operation:
    return computing(
        search.program,
        masking.operation,
        [masking.scores],
        lambda scores: scores.masked_fill(torch.tensor(~allowed), fill),
    )


def _filled(search: Search, masking: _Masking, fill: float) -> Proposal:
    texts = [f"masked scores set to {number(value)}" for value in (masking.fill, fill)]
    return Proposal([_masked(search, masking, masking.allowed, fill)], *texts)


def _unmasked_base(search: Search) -> Iterator[Proposal]:
    """The target alone masks: scores of the base that it leaves out."""
    for operation in search.window:
        scores = search.array(operation.outputs[0])
        if scores.dtype.kind != "f" or scores.ndim < 2 or operation.outputs[0] in search.static:
            continue
        for allowed, fill in _target_masks(search, scores):
            if allowed.all():
                continue
            edited = with_output(
                search.program,
                operation,
                lambda s, allowed=allowed, fill=fill: s.masked_fill(
                    torch.tensor(~allowed), -np.inf if fill is None else fill
                ),
            )
            yield Proposal(
                [edited], _describe(search, np.ones(scores.shape, bool)), _describe(search, allowed)
            )


def _describe(search: Search, allowed: np.ndarray) -> str:
    """The allowed set as a conjunction of what masks are made of, else by a row that tells."""
    if allowed.all():
        return "no mask: every query attends to all keys"
    flat = allowed.reshape(-1, *allowed.shape[-2:])
    given = {}
    for name, n in search.program.named("input").items():
        held = search.array(n)
        if held.dtype.kind in "iub" and np.isin(held, (0, 1)).all():
            given[name] = held.astype(bool)
            given[f"{name}, inverted"] = ~held.astype(bool)
            if held.ndim == 2 and allowed.ndim == 4 and held.shape[-1] == allowed.shape[-2]:
                rows = held.astype(bool)[:, None, :, None]
                if np.array_equal(np.broadcast_to(rows, allowed.shape), allowed):
                    return f"queries masked by {name}, and no keys"
    if (flat == flat[0]).all():
        allowed = flat[0][None, None]
    parts = identify_parts(allowed, given)
    if parts:
        return "attention masked by " + " and ".join(parts)
    counts = [int(row.sum()) for row in allowed.reshape(-1, *allowed.shape[-2:])[0]]
    return f"attention to {', '.join(map(str, counts))} keys, query by query"
