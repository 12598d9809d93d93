"""How a tensor of theirs relates to ours: literal arrays."""

import numpy as np
import pytest

from transformer_hub.families.relations import Fused, Stacked, Transposed

ROWS = [np.array([[10 * r + i] for i in range(n)]) for r, n in ((1, 4), (2, 2), (3, 2))]
HEADS = [np.array([10 * r + i for i in range(4)]) for r in (1, 2, 3)]
SQUARES = [np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])]
EXPERTS = [np.array([[[1], [2]], [[3], [4]]]), np.array([[[5], [6]], [[7], [8]]])]


@pytest.mark.parametrize(
    ("relation", "ours", "theirs"),
    [
        (Fused("qkv", ("q", "k", "v")), ROWS, [[[n] for n in (10, 11, 12, 13, 20, 21, 30, 31)]]),
        # Two heads of width 2: q, k and v of the first, then those of the second.
        (
            Fused("qkv", ("q", "k", "v"), groups=2),
            HEADS,
            [[10, 11, 20, 21, 30, 31, 12, 13, 22, 23, 32, 33]],
        ),
        (Fused("qk", ("q", "k"), transposed=True), SQUARES, [[[1, 3, 5, 7], [2, 4, 6, 8]]]),
        (Fused("gu", ("g", "u")), EXPERTS, [[[[1], [2], [5], [6]], [[3], [4], [7], [8]]]]),
        (Transposed("a", "b"), SQUARES[:1], [[[1, 3], [2, 4]]]),
        (Stacked("w{e}", "gate"), EXPERTS[:1], [[[1], [2]], [[3], [4]]]),
    ],
    ids=["blocks of rows", "head by head", "columns", "experts", "transposed", "stacked"],
)
def test_a_relation_in_both_directions(relation, ours, theirs):
    found = relation.to_theirs(ours)
    assert [array.tolist() for array in found] == theirs
    shapes = [array.shape for array in ours]
    assert relation.their_shapes(shapes, len(theirs)) == [array.shape for array in found]
    back = relation.to_ours(found, shapes)
    assert [array.tolist() for array in back] == [array.tolist() for array in ours]
