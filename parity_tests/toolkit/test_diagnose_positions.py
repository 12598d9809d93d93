"""Causes in rotations, distances, windows and prefixes, solved from numbers written by hand."""

import numpy as np
import pytest

from parity.explain.causes.attention import different_scores
from parity.explain.causes.distances import different_buckets
from parity.explain.causes.evidence import Computed, Evidence
from parity.explain.causes.masks import different_mask
from parity.explain.causes.positions import different_ids
from parity.explain.causes.rotary import different_rotation_table
from parity.explain.causes.rotation import different_rotation
from parity.explain.diagnose import diagnose
from parity.explain.localize import Fault
from parity.observe.points import Observed, Point, Recording

RNG = np.random.default_rng(7)
POWERS = np.arange(5) / 5
SIZES = {"head_dim": 16.0, "d_model": 48.0}


def said(explain, reference, candidate, read=None, inputs=(), params=None, name="decoder.x"):
    """The causes of one value that differs; those of two values where there are two."""
    sides = [side if isinstance(side, tuple) else (side,) for side in (reference, candidate)]
    point = Point(name, "output", name.rpartition(".")[0])
    computed = [Computed(point, r, c, read or {}) for r, c in zip(*sides, strict=True)]
    evidence = Evidence(name, list(inputs), computed, params or {}, sizes=SIZES)
    causes = list(explain(evidence, computed[0]))
    assert all(cause.residual is not None and cause.residual < 1e-11 for cause in causes)
    return [cause.text for cause in causes]


def tables(frequencies: np.ndarray, positions: np.ndarray, amplitude: float = 1.0):
    """cos and sin, [B, T, C, P]."""
    angles = positions[..., None] * frequencies
    return amplitude * np.cos(angles), amplitude * np.sin(angles)


def turned_tables(reference, candidate) -> list[str]:
    """What is said of two spectra at positions 0..10, some skipped."""
    at = np.array([[0, 1, 2, 5, 10], [0, 0, 1, 2, 3]])[..., None]
    sides = [tables(*side, at) if isinstance(side, tuple) else tables(side, at)
             for side in (reference, candidate)]  # fmt: skip
    return said(different_rotation_table, *sides, inputs=[at])


PLAIN = 31.0**-POWERS
BY_PARTS = 500000.0**-POWERS / [1, 1, 3, 8, 8]


@pytest.mark.parametrize(("reference", "candidate", "texts"), [
    (500000.0**-POWERS, 10000.0**-POWERS,
     ["frequencies of theta 10000, where the reference has theta 500000"]),
    (PLAIN, 31.0**(-POWERS * 10 / 16),
     ["frequencies theta**(-2i / 16), as if all of a head's 16 dimensions rotated, where the "
      "reference has theta**(-2i / 10), theta 31"]),
    (BY_PARTS, 500000.0**-POWERS,
     ["powers of theta as they are, where the reference has them divided by 8 for the 2 pairs of "
      "long wavelength and kept for the 2 of short"]),
    (PLAIN, PLAIN / 3,
     ["powers of theta all divided by 3, where the reference has them as they are"]),
    (PLAIN, -PLAIN, ["rotated backwards: every angle has the opposite sign"]),
    (PLAIN[:2], np.array([1.0, 2.0]),
     ["pairs rotate by 1 2 per position, where the reference's rotate by 1 0.5032"]),
    (BY_PARTS, BY_PARTS, []),
])  # fmt: skip
def test_frequencies_are_solved_for(reference, candidate, texts):
    assert turned_tables(reference, candidate) == texts


def test_the_amplitude_of_a_rotation_is_solved_for():
    at = np.arange(4)[None, :, None]
    text = said(different_rotation_table, tables(PLAIN, at, 1.2), tables(PLAIN, at), inputs=[at])
    assert text == ["cosines and sines times 1, in the reference times 1.2"]


def test_what_is_no_rotation_is_not_explained():
    at = np.arange(4)[None, :, None]
    right = tables(PLAIN, at)
    assert said(different_rotation_table, right, (right[0], right[1] + 0.1), inputs=[at]) == []
    far = np.array([[[0], [4], [9]]])
    assert (
        said(different_rotation_table, tables(PLAIN, far), tables(PLAIN / 2, far), inputs=[far])
        == []
    )


def turn(x: np.ndarray, angles: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """x [B, T, N, H] with these pairs of dimensions turned by angles [T or 1, N or 1, P]."""
    y = x.copy()
    for i, (a, b) in enumerate(pairs):
        cos, sin = np.cos(angles[..., i]), np.sin(angles[..., i])
        y[..., a] = x[..., a] * cos - x[..., b] * sin
        y[..., b] = x[..., b] * cos + x[..., a] * sin
    return y


def test_what_a_rotation_turns_is_solved_for():
    x, frequencies = RNG.normal(size=(2, 5, 3, 7)), np.array([1.0, 0.3])
    by_token = np.arange(5)[:, None, None] * frequencies
    by_head = np.arange(3)[None, :, None] * frequencies
    halves, neighbours = [(0, 2), (1, 3)], [(0, 1), (2, 3)]
    cos, sin = tables(frequencies, np.arange(5)[None, :, None])
    read = {"q": x, "rotation[0]": cos, "rotation[1]": sin}

    def of(right, wrong):
        return said(different_rotation, right, wrong, read, name="decoder.layers.0.attn.q_rotated")

    right = turn(x, by_token, halves)
    assert of(right, right) == []
    assert of(right, turn(x, by_token, neighbours)) == [
        "pairs are neighbours (0, 1), (2, 3), where the reference's are one of each half"
    ]
    assert of(right, turn(x, by_head, halves)) == [
        "rotated by the index of the head, where the reference takes that of the position"
    ]
    assert of(right, turn(x, -by_token, halves)) == ["rotated by the negative of each angle"]
    assert of(right, turn(x, by_token[..., :1], [(0, 1)])) == [
        "rotates 2 dimensions of each head, 1/2 of the reference's 4"
    ]
    assert of(right, x) == ["rotates 0 dimensions of each head, 0 of the reference's 4"]
    assert of(right, right + 0.1) == []


# Unidirectional and bidirectional rows of 8 buckets for a key so far back, by the published rule
# with max_distance 20: 4 (20 / 4)**(1 / 4) = 5.98, 8.94, 13.4; 2 (20 / 2)**(1 / 2) = 6.32.
BACK = [0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7]
EITHER = [0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3]
WEIGHT = np.random.default_rng(5).normal(size=(8, 3))


def bias_of(buckets: list[int], ahead: list[int]) -> np.ndarray:
    """[1, N, T, S] from the bucket of each distance back and of each distance ahead."""
    at = np.arange(len(buckets))
    steps = at - at[:, None]
    rows = np.where(steps > 0, np.array(ahead)[abs(steps)], np.array(buckets)[abs(steps)])
    return np.moveaxis(WEIGHT[rows], -1, 0)[None]


def sorted_distances(reference, candidate) -> list[str]:
    sides = [bias_of(*side) for side in (reference, candidate)]
    inputs = [np.arange(sides[0].shape[-1])[None]]
    return said(different_buckets, *sides, inputs=inputs, params={"weight": WEIGHT})


ONE_WAY = (BACK, [0] * 16)
BOTH_WAYS = (EITHER, [b + 4 for b in EITHER])


@pytest.mark.parametrize(("reference", "candidate", "texts"), [
    (ONE_WAY, ([0, 1, 2, 3, 4, 5, 6, 7] + [7] * 8, [0] * 16),
     ["distance 5 back is in bucket 5, where the reference has 4",
      "as with max_distance 7 to 8, where the reference's is 20"]),
    (ONE_WAY, BOTH_WAYS,
     ["distance 1 ahead is in bucket 5, where the reference has 0",
      "buckets are split between the directions, where the reference's are all for keys up to "
      "the query"]),
    (BOTH_WAYS, ([0, *BOTH_WAYS[1][1:]], EITHER),
     ["distance 1 back is in bucket 5, where the reference has 1",
      "keys before the query count as keys after it"]),
    (ONE_WAY, ([0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7], [0] * 16),
     ["distance 5 back is in bucket 5, where the reference has 4",
      "distances below 6 have a bucket each, in the reference below 4"]),
    (ONE_WAY, ONE_WAY, []),
])  # fmt: skip
def test_the_rule_of_distances_is_solved_for(reference, candidate, texts):
    assert sorted_distances(reference, candidate) == texts


def test_buckets_without_a_rule_are_still_read_off():
    odd = [0, 1, 2, 3, 4, 4, 5, 5, 2, 6, 6, 6, 6, 6, 7, 7]
    assert sorted_distances(ONE_WAY, (odd, [0] * 16)) == [
        "distance 8 back is in bucket 2, where the reference has 5"
    ]


def test_a_bias_of_no_rows_is_not_explained():
    right = bias_of(*ONE_WAY)
    inputs = [np.arange(16)[None]]
    wrong = right + np.eye(16)
    assert said(different_buckets, right, wrong, inputs=inputs, params={"weight": WEIGHT}) == []


def test_windows_and_prefixes_are_solved_for():
    causal = np.tri(6, dtype=bool)
    banded = {w: (causal & ~np.tri(6, k=-w, dtype=bool))[None, None] for w in (3, 4)}
    prefix = np.arange(6) < np.array([[2], [4]])
    opened = causal | prefix[:, None, None]
    read = {"prefix_mask": prefix}
    no_later = "causality (no key after the query)"
    assert said(different_mask, banded[3], banded[4]) == [
        f"{no_later} and a window of 4 keys, where the reference has {no_later} and a window of "
        "3 keys"
    ]
    assert said(different_mask, banded[3], banded[3].mT) == [
        "reversed causality (no key before the query) and a window of 3 keys from the query on, "
        f"where the reference has {no_later} and a window of 3 keys"
    ]
    assert said(different_mask, opened, np.broadcast_to(causal, opened.shape), read) == [
        f"{no_later}, where the reference has causality but for the keys in prefix_mask, which "
        "all queries see"
    ]
    assert said(different_mask, opened, opened, read) == []


PREFIX = np.arange(7) < np.array([[2], [3], [5], [4]])
PLACE = np.array([[0, 1, 1, 1, 1, 1, 1], [0, 1, 2, 2, 2, 2, 2], [0, 1, 2, 3, 4, 4, 4],
                  [0, 1, 2, 3, 3, 3, 3]])  # fmt: skip
ANSWER = np.array([[0, 0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3, 4], [0, 0, 0, 0, 0, 1, 2],
                   [0, 0, 0, 0, 1, 2, 3]])  # fmt: skip
ON = np.tile(np.arange(7), (4, 1))


@pytest.mark.parametrize("axis", [1, 2])
def test_what_channels_of_positions_count_is_solved_for(axis):
    """[B, 2, T] as a caller gives them, [B, T, 2] as a rotation reads them."""

    def of(place, answer=ANSWER):
        sides = [np.stack(pair, axis) for pair in ((PLACE, ANSWER), (place, answer))]
        return said(different_ids, *sides, {"prefix_mask": PREFIX})

    assert of(PLACE) == []
    assert of(ON) == [
        "channel 0: ids run on along the row, where the reference's stay at 1, 2, 4, 3, the last "
        "of prefix_mask"
    ]
    # Rows from the 2nd on are written with 1, the last of row 0; those from the 3rd on with 2, the
    # last of row 1. Prefixes of 5 and 4 are beyond the batch.
    rows = np.array([ON[0], ON[1], [1] * 7, [2] * 7])
    assert of(rows) == [
        "channel 0: rows 2, 3 hold 1, 2 throughout, which is where the ids of rows 0, 1 end in the "
        "reference; rows 0, 1 run on past their own end"
    ]
    assert of(PLACE, ANSWER * 0) == ["channel 1: all ids are 0"]
    assert of(PLACE, np.maximum(ANSWER - 1, 0)) == ["channel 1: ids are off by -1"]
    assert of(rows + (ON == 3)) == []


def test_ids_of_other_shapes_are_not_explained():
    assert said(different_ids, np.arange(6)[None], np.arange(4)[None]) == []


def test_a_bias_on_scores_is_solved_for():
    q, k = RNG.normal(size=(2, 5, 6, 3)), RNG.normal(size=(2, 5, 2, 3))
    bias = RNG.normal(size=(1, 6, 5, 5))
    raw = 0.5 * np.einsum("BTNH,BSNH->BNTS", q, np.repeat(k, 3, 2))
    read = {"q": q, "k": k, "bias": bias}

    def of(wrong):
        shape = (2, 2, 3, 5, 5)
        sides = ((raw + bias).reshape(shape), wrong.reshape(shape))
        return said(different_scores, *sides, read, name="decoder.layers.0.attn.scores")

    assert of(raw + bias) == []
    assert of(raw) == ["the scores hold no bias, where the reference's hold the bias"]
    assert of(raw + bias / 4) == [
        "the scores hold the bias times 0.25 = head_dim**-0.5, where the reference's hold the bias"
    ]
    assert of(2 * raw - bias) == [
        "score scale 1, where the reference has 0.5",
        "the scores hold the bias times -1, where the reference's hold the bias",
    ]


def test_scores_of_what_was_not_rotated_are_named():
    q, k, q_rotated, k_rotated = RNG.normal(size=(4, 2, 5, 3, 4))
    read = {"q": q, "k": k, "q_rotated": q_rotated, "k_rotated": k_rotated}
    right = np.einsum("BTNH,BSNH->BNTS", q_rotated, k_rotated)
    wrong = np.einsum("BTNH,BSNH->BNTS", q, k)
    assert said(different_scores, right, wrong, read, name="decoder.layers.0.attn.scores") == [
        "q and k meet as they were before their rotation, where the reference has key heads "
        "repeated (0 0 1 1)"
    ]


def test_an_argument_that_is_handed_over_besides_is_named():
    """And where else it goes; an argument that has another name on the other side is no other."""
    x, bias = RNG.normal(size=(2, 5)), RNG.normal(size=(3, 5, 5))

    def run(*calls: tuple[str, dict[str, np.ndarray]]) -> Recording:
        points = [Observed(Point("", "input", "", ()), [], [])]
        points += [
            Observed(Point(name, "input", "", tuple(given)), list(given.values()), [])
            for name, given in calls
        ]
        return Recording({p.point.key: p for p in points}, {})

    def of(ours: Recording, theirs: Recording) -> list[str]:
        fault = Fault("", "forward", "local", "input of cross_attn", np.inf)
        return [cause.text for cause in diagnose(fault, ours, theirs, {}, {}, 1e-12)]

    right = run(("attn", {"x": x, "bias": bias}), ("cross_attn", {"x": x}))
    wrong = run(("attn", {"x": x, "bias": bias}), ("cross_attn", {"x": x, "bias": bias}))
    other = run(("attn", {"inputs": x, "bias": bias}), ("cross_attn", {"inputs": x}))
    assert of(right, wrong) == [
        "bias is passed to cross_attn, the same as to attn; the reference passes none"
    ]
    assert of(right, other) == []
