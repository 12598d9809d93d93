"""Relative biases: the bucket that each distance reads, and the rule that sorts distances so."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains

# Rules are tried up to this max_distance; what the distances at hand leave open is said.
LARGEST_MAX_DISTANCE = 1024


@dataclass(frozen=True)
class Rule:
    """How a stack's buckets are given to distances, but for how far they reach.

    Args:
        both: half of the buckets for each direction; else all for keys up to the query.
        mirrored: keys before the query are taken for keys after it.
        per_direction: the buckets of one direction.
        exact: distances below it have a bucket each.
    """

    both: bool
    mirrored: bool
    per_direction: int
    exact: int


def different_buckets(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """A bias [B, N, T, S] that reads rows of a table [buckets, N] by distance."""
    table = evidence.params.get("weight")
    if table is None or table.ndim != 2 or value.reference.ndim != 4:
        return
    ahead = _ahead(evidence.inputs)
    if ahead is None:
        return
    ours, theirs = (_buckets(table, ahead, y) for y in (value.reference, value.candidate))
    if ours is None or theirs is None or ours == theirs:
        return
    residual = deviation(_bias(table, ahead, theirs), value.candidate)
    step = _query_shift(len(table), ours, theirs)
    if step:
        side = "early" if step > 0 else "late"
        text = f"the bias of queries {abs(step)} positions too {side}"
        yield Cause(text, "add the number of cached tokens to the queries' positions", residual)
        return
    yield Cause(_first_difference(ours, theirs), "sort distances as the reference does", residual)
    for text, fix in _different_rules(len(table), ours, theirs):
        yield Cause(text, fix, residual)


def _ahead(inputs: list[np.ndarray]) -> np.ndarray | None:
    """How far each key stands ahead of each query: positions of queries, and of keys if others."""
    positions = [array for array in inputs if array.dtype.kind in "iu" and array.ndim == 2]
    if not positions or len(positions) != len(inputs):
        return None
    return positions[-1][:, None, :] - positions[0][:, :, None]


def _query_shift(count: int, ours: dict[int, int], theirs: dict[int, int]) -> int:
    """By how much queries stand too early, if that alone gives their buckets; else 0."""
    ahead, wanted = np.array(list(theirs)), np.array(list(theirs.values()))
    reach = int(np.abs(ahead).max())
    steps = sorted((n for n in range(-reach, reach + 1) if n), key=abs)
    for (rule, spans), step in product(_rules(count, ours).items(), steps):
        if (_buckets_by_rule(rule, np.array(spans)[:, None], ahead + step) == wanted).all(1).any():
            return step
    return 0


def _buckets(table: np.ndarray, ahead: np.ndarray, y: np.ndarray) -> dict[int, int] | None:
    """The row that each distance reads, if every head of every pair reads a row."""
    if y.shape[-2:] != ahead.shape[-2:] or y.shape[1] != table.shape[1]:
        return None
    whole = np.broadcast_to(ahead, (y.shape[0], *ahead.shape[1:]))
    distances, first = np.unique(whole, return_index=True)
    rows = np.moveaxis(y, 1, -1).reshape(-1, y.shape[1])[first]
    distances_to_rows = np.abs(rows[:, None] - table).sum(-1)
    found = dict(zip(distances.tolist(), distances_to_rows.argmin(1).tolist(), strict=True))
    return found if explains(_bias(table, whole, found), y) else None


def _bias(table: np.ndarray, ahead: np.ndarray, buckets: dict[int, int]) -> np.ndarray:
    read = np.vectorize(buckets.__getitem__, otypes=[int])(ahead)
    return np.moveaxis(table[read], -1, 1)


def _first_difference(ours: dict[int, int], theirs: dict[int, int]) -> str:
    at = min((d for d in ours if ours[d] != theirs[d]), key=lambda d: (abs(d), d))
    where = f"distance {abs(at)} {'ahead' if at > 0 else 'back'}"
    return f"{where} is in bucket {theirs[at]}, where the reference has {ours[at]}"


def bucket_differences(
    count: int, ours: dict[int, int], theirs: dict[int, int]
) -> tuple[str, str] | None:
    """(ours, theirs): the rules that sort distances into so many buckets, told by a difference."""
    right, wrong = (_rules(count, buckets) for buckets in (ours, theirs))
    if not right or not wrong:
        return None
    a, b = _most_alike(right, wrong)
    parting = _parting(a, b, right, wrong)
    if not parting:
        return None
    texts = []
    for rule, spans in ((a, right[a]), (b, wrong[b])):
        words = {
            "both": "split between the directions" if rule.both else "all for earlier keys",
            "mirrored": "earlier keys taken for later ones" if rule.mirrored else "by direction",
            "share": f"a bucket each for distances below {rule.exact}",
            "reach": f"max_distance {_span(spans)}",
        }
        texts.append("buckets " + ", ".join(words[aspect] for aspect in parting))
    return texts[0], texts[1]


def _different_rules(
    count: int, ours: dict[int, int], theirs: dict[int, int]
) -> Iterator[tuple[str, str]]:
    """(text, fix) for each difference of the two rules that are most alike."""
    right, wrong = (_rules(count, buckets) for buckets in (ours, theirs))
    if not right or not wrong:
        return
    a, b = _most_alike(right, wrong)
    parting = _parting(a, b, right, wrong)
    if "both" in parting:
        kinds = {True: "split between the directions", False: "all for keys up to the query"}
        text = f"buckets are {kinds[b.both]}, where the reference's are {kinds[a.both]}"
        yield text, f"build this stack's bias with buckets {kinds[a.both]}"
    if "mirrored" in parting:
        yield "keys before the query count as keys after it", "swap query and key positions"
    if "share" in parting:
        text = f"distances below {b.exact} have a bucket each, in the reference below {a.exact}"
        yield text, f"give distances below {a.exact} a bucket each"
    if "reach" in parting:
        text = f"as with max_distance {_span(wrong[b])}, where the reference's is {_span(right[a])}"
        yield text, "use the reference's max_distance"


def _most_alike(right: dict[Rule, list[int]], wrong: dict[Rule, list[int]]) -> tuple[Rule, Rule]:
    return min(product(right, wrong), key=lambda pair: len(_parting(*pair, right, wrong)))


def _parting(
    a: Rule, b: Rule, right: dict[Rule, list[int]], wrong: dict[Rule, list[int]]
) -> list[str]:
    """In what two rules differ."""
    aspects = {
        "both": a.both != b.both,
        "mirrored": a.mirrored != b.mirrored,
        "share": a.exact * b.per_direction != b.exact * a.per_direction,
        "reach": not set(right[a]) & set(wrong[b]),
    }
    return [aspect for aspect, differs in aspects.items() if differs]


def _span(values: list[int]) -> str:
    if values[-1] == LARGEST_MAX_DISTANCE:
        return f"{values[0]} or more"
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _rules(count: int, buckets: dict[int, int]) -> dict[Rule, list[int]]:
    """Every rule that gives these buckets, with the max_distances under which it does."""
    found: dict[Rule, list[int]] = defaultdict(list)
    ahead, wanted = np.array(list(buckets)), np.array(list(buckets.values()))
    for both, mirrored in product((True, False), (False, True)):
        per_direction = count // 2 if both else count
        # Half of the buckets comes first: the rule as it was published.
        for exact in sorted(range(1, per_direction), key=lambda e: abs(2 * e - per_direction)):
            rule = Rule(both, mirrored, per_direction, exact)
            reach = np.arange(exact + 1, LARGEST_MAX_DISTANCE + 1)[:, None]
            fits = (_buckets_by_rule(rule, reach, ahead) == wanted).all(1)
            if fits.any():
                found[rule] = reach[fits, 0].tolist()
    return dict(found)


def _buckets_by_rule(rule: Rule, reach: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """The buckets that a rule gives to distances, a row for each max_distance in `reach` [R, 1]."""
    signed = -ahead if rule.mirrored else ahead
    distance = np.abs(signed) if rule.both else np.maximum(-signed, 0)
    side = rule.per_direction * (signed > 0) if rule.both else 0
    shares = np.log(np.maximum(distance, rule.exact) / rule.exact) / np.log(reach / rule.exact)
    # A distance on the border belongs to the farther bucket, whatever rounding says.
    shared = rule.exact + (shares * (rule.per_direction - rule.exact) + 1e-9).astype(int)
    return (
        np.where(distance < rule.exact, distance, np.minimum(shared, rule.per_direction - 1)) + side
    )
