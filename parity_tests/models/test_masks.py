"""Masks as literal matrices, in both twins."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.masks as flax_masks
import torch_reference.masks as torch_masks
from transformer_spec.config import Causal, PrefixLM

T, F = True, False
CAUSAL_4 = [[T, F, F, F], [T, T, F, F], [T, T, T, F], [T, T, T, T]]
TOKENS = [[F, T, T, F], [T, T, F, F]]
CAUSAL_AND_PADDING = [
    [[F, F, F, F], [F, T, F, F], [F, T, T, F], [F, T, T, F]],
    [[T, F, F, F], [T, T, F, F], [T, T, F, F], [T, T, F, F]],
]


def each_twin(call):
    """The result of `call(masks_module, as_array)` in either framework, as NumPy."""
    flax = call(flax_masks, jnp.asarray)
    reference = call(torch_masks, torch.tensor)
    return [np.asarray(flax), reference.numpy()]


def at(length, array):
    """The numbers of the queries and of the keys of a text read in one call."""
    return (array(np.arange(length)),) * 2


def test_causal():
    for mask in each_twin(lambda masks, array: masks.causal_mask(*at(4, array))):
        assert mask.dtype == bool
        np.testing.assert_array_equal(mask, [[CAUSAL_4]])


def test_padding():
    for mask in each_twin(lambda masks, array: masks.padding_mask(array(TOKENS))):
        np.testing.assert_array_equal(mask, np.array(TOKENS)[:, None, None, :])


def test_causal_and_padding_combined():
    for mask in each_twin(
        lambda masks, array: masks.combine_masks(
            masks.causal_mask(*at(4, array)), None, masks.padding_mask(array(TOKENS))
        )
    ):
        np.testing.assert_array_equal(mask, np.array(CAUSAL_AND_PADDING)[:, None])


def test_nothing_combined_is_no_mask():
    assert flax_masks.combine_masks(None, None) is None
    assert torch_masks.combine_masks(None, None) is None


def test_positions_count_tokens_and_not_padding():
    tokens = [[F, F, T, T, T], [T, T, T, F, F], [F, T, F, T, F]]
    expected = [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 0, 1, 1]]
    for positions in each_twin(lambda masks, array: masks.positions_from(array(tokens))):
        np.testing.assert_array_equal(positions, expected)


WINDOW_2 = [[T, F, F, F], [T, T, F, F], [F, T, T, F], [F, F, T, T]]
PREFIXES = [[T, T, T, F], [F, F, F, F], [T, F, F, F]]
PREFIX_4 = [
    [[T, T, T, F], [T, T, T, F], [T, T, T, F], [T, T, T, T]],
    CAUSAL_4,
    CAUSAL_4,
]


@pytest.mark.parametrize(
    ("window", "matrix"),
    [(1, np.eye(4, dtype=bool)), (2, WINDOW_2), (4, CAUSAL_4), (9, CAUSAL_4), (None, CAUSAL_4)],
)
def test_a_window_counts_the_query_itself(window, matrix):
    for mask in each_twin(lambda masks, array: masks.causal_mask(*at(4, array), window)):
        np.testing.assert_array_equal(mask, [[matrix]])
    for mask in each_twin(
        lambda masks, array: masks.decoder_mask(Causal(window=window), *at(4, array), None)
    ):
        np.testing.assert_array_equal(mask, [[matrix]])


def test_queries_see_no_further_than_themselves_wherever_the_keys_stand():
    """Queries 3 and 4 of a text; slots that hold tokens 4, 1, 2, 3 and none."""
    slots = np.array([4, 1, 2, 3, 2**31 - 1])
    for window, matrix in (
        (None, [[F, T, T, T, F], [T, T, T, T, F]]),
        (2, [[F, F, T, T, F], [T, F, F, T, F]]),
    ):
        for mask in each_twin(
            lambda masks, array, window=window: masks.causal_mask(
                array(np.array([3, 4])), array(slots), window
            )
        ):
            np.testing.assert_array_equal(mask, [[matrix]])


def test_a_prefix_is_seen_by_every_query_and_the_rest_causally():
    for mask in each_twin(
        lambda masks, array: masks.decoder_mask(
            PrefixLM(), *at(4, array), array(np.array(PREFIXES))
        )
    ):
        np.testing.assert_array_equal(mask, np.array(PREFIX_4)[:, None])
    for mask in each_twin(lambda masks, array: masks.decoder_mask(PrefixLM(), *at(4, array), None)):
        np.testing.assert_array_equal(mask, [[CAUSAL_4]])


def test_a_prefix_without_a_use_for_it_is_refused():
    for masks, array in ((flax_masks, jnp.asarray), (torch_masks, torch.tensor)):
        with pytest.raises(ValueError, match="prefix_mask: not usable under Causal"):
            masks.decoder_mask(Causal(), *at(4, array), array(np.array(PREFIXES)))


def test_two_channels_count_the_prefix_and_the_answer():
    """Prefixes of 3, 0, 1 and 4 tokens."""
    prefixes = np.array([*PREFIXES, [T, T, T, T]])
    expected = [
        [[0, 1, 2, 2], [0, 0, 0, 1]],
        [[0, 0, 0, 0], [1, 2, 3, 4]],
        [[0, 0, 0, 0], [0, 1, 2, 3]],
        [[0, 1, 2, 3], [0, 0, 0, 0]],
    ]
    for channels in each_twin(
        lambda masks, array: masks.two_channel_positions(array(np.arange(4)[None]), array(prefixes))
    ):
        np.testing.assert_array_equal(channels, expected)


def test_two_channels_skip_padding():
    """Padding on the left, a prefix of 2, an answer of 2, padding on the right."""
    tokens, prefix = np.array([[F, T, T, T, T, F]]), np.array([[F, T, T, F, F, F]])
    for channels in each_twin(
        lambda masks, array: masks.two_channel_positions(
            masks.positions_from(array(tokens)), array(prefix)
        )
    ):
        np.testing.assert_array_equal(channels, [[[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 2, 2]]])


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((2, 1, 5, 7)), "mask: dtype float64 is not usable"),
        (np.ones((2, 1, 5, 7), np.int32), "mask: dtype int32 is not usable"),
        (np.ones((2, 5, 7), bool), "mask: shape \\(2, 5, 7\\) does not broadcast"),
        (np.ones((2, 2, 5, 7), bool), "mask: shape \\(2, 2, 5, 7\\) does not broadcast"),
        (np.ones((2, 1, 7, 5), bool), "mask: shape \\(2, 1, 7, 5\\) does not broadcast"),
    ],
)
def test_wrong_masks_are_refused_by_name(mask, message):
    with pytest.raises(ValueError, match=message):
        flax_masks.check_mask(jnp.asarray(mask), (2, 6, 5, 7))
    with pytest.raises(ValueError, match=message):
        torch_masks.check_mask(torch.tensor(mask), (2, 6, 5, 7))
