"""Relative biases: the bucket that each distance reads, and the rule that sorts distances so."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from parity.causes.evidence import Cause, Computed, Evidence, explains, off

# Rules are tried up to this max_distance; what the distances at hand leave open is said.
FARTHEST = 1024


@dataclass(frozen=True)
class Rule:
    """How a stack's buckets are given to distances, but for how far they reach.

    Args:
        both: half of the buckets for each direction; else all for keys up to the query.
        mirrored: keys before the query are taken for keys after it.
        own: the buckets of one direction.
        exact: distances below it have a bucket each.
    """

    both: bool
    mirrored: bool
    own: int
    exact: int


def different_buckets(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """A bias [B, N, T, S] that reads rows of a table [buckets, N] by distance."""
    table, positions = evidence.params.get("weight"), next(iter(evidence.inputs), None)
    if table is None or positions is None or positions.dtype.kind not in "iu":
        return
    if positions.ndim != 2 or value.reference.ndim != 4 or table.ndim != 2:
        return
    ahead = positions[:, None, :] - positions[:, :, None]
    ours, theirs = (_buckets(table, ahead, y) for y in (value.reference, value.candidate))
    if ours is None or theirs is None or ours == theirs:
        return
    residual = off(_bias(table, ahead, theirs), value.candidate)
    yield Cause(_first_difference(ours, theirs), "sort distances as the reference does", residual)
    for text, fix in _different_rules(len(table), ours, theirs):
        yield Cause(text, fix, residual)


def _buckets(table: np.ndarray, ahead: np.ndarray, y: np.ndarray) -> dict[int, int] | None:
    """The row that each distance reads, if every head of every pair reads a row."""
    if y.shape[-2:] != ahead.shape[-2:] or y.shape[1] != table.shape[1]:
        return None
    whole = np.broadcast_to(ahead, (y.shape[0], *ahead.shape[1:]))
    distances, first = np.unique(whole, return_index=True)
    rows = np.moveaxis(y, 1, -1).reshape(-1, y.shape[1])[first]
    apart = np.abs(rows[:, None] - table).sum(-1)
    found = dict(zip(distances.tolist(), apart.argmin(1).tolist(), strict=True))
    return found if explains(_bias(table, whole, found), y) else None


def _bias(table: np.ndarray, ahead: np.ndarray, buckets: dict[int, int]) -> np.ndarray:
    read = np.vectorize(buckets.__getitem__, otypes=[int])(ahead)
    return np.moveaxis(table[read], -1, 1)


def _first_difference(ours: dict[int, int], theirs: dict[int, int]) -> str:
    at = min((d for d in ours if ours[d] != theirs[d]), key=lambda d: (abs(d), d))
    where = f"distance {abs(at)} {'ahead' if at > 0 else 'back'}"
    return f"{where} is in bucket {theirs[at]}, where the reference has {ours[at]}"


def _different_rules(
    count: int, ours: dict[int, int], theirs: dict[int, int]
) -> Iterator[tuple[str, str]]:
    """(text, fix) for each difference of the two rules that are most alike."""
    right, wrong = (_rules(count, buckets) for buckets in (ours, theirs))
    if not right or not wrong:
        return

    def apart(pair: tuple[Rule, Rule]) -> int:
        a, b = pair
        share = a.exact * b.own != b.exact * a.own
        far = not set(right[a]) & set(wrong[b])
        return sum((a.both != b.both, a.mirrored != b.mirrored, share, far))

    a, b = min(product(right, wrong), key=apart)
    if a.both != b.both:
        kinds = {True: "split between the directions", False: "all for keys up to the query"}
        text = f"buckets are {kinds[b.both]}, where the reference's are {kinds[a.both]}"
        yield text, f"build this stack's bias with buckets {kinds[a.both]}"
    if a.mirrored != b.mirrored:
        yield "keys before the query count as keys after it", "swap query and key positions"
    if a.exact * b.own != b.exact * a.own:
        text = f"distances below {b.exact} have a bucket each, in the reference below {a.exact}"
        yield text, f"give distances below {a.exact} a bucket each"
    if not set(right[a]) & set(wrong[b]):
        text = f"as with max_distance {_span(wrong[b])}, where the reference's is {_span(right[a])}"
        yield text, "use the reference's max_distance"


def _span(values: list[int]) -> str:
    if values[-1] == FARTHEST:
        return f"{values[0]} or more"
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _rules(count: int, buckets: dict[int, int]) -> dict[Rule, list[int]]:
    """Every rule that gives these buckets, with the max_distances under which it does."""
    found: dict[Rule, list[int]] = defaultdict(list)
    ahead, wanted = np.array(list(buckets)), np.array(list(buckets.values()))
    for both, mirrored in product((True, False), (False, True)):
        own = count // 2 if both else count
        signed = -ahead if mirrored else ahead
        distance = np.abs(signed) if both else np.maximum(-signed, 0)
        side = own * (signed > 0) if both else 0
        # Half of the buckets comes first: the rule as it was published.
        for exact in sorted(range(1, own), key=lambda e: abs(2 * e - own)):
            reach = np.arange(exact + 1, FARTHEST + 1)[:, None]
            shares = np.log(np.maximum(distance, exact) / exact) / np.log(reach / exact)
            # A distance on the border belongs to the farther bucket, whatever rounding says.
            shared = np.minimum(exact + (shares * (own - exact) + 1e-9).astype(int), own - 1)
            given = np.where(distance < exact, distance, shared) + side
            fits = (given == wanted).all(1)
            if fits.any():
                found[Rule(both, mirrored, own, exact)] = reach[fits, 0].tolist()
    return dict(found)
