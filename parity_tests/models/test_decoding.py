"""Greedy decoding: scripted logits, the window, and the same tokens from both twins."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.decoding as flax_decoding
import torch_reference.decoding as torch_decoding
from parity_tests.models.test_models import both_logits, model_pair
from transformer_spec.config import Learned, PrefixLM, TwoChannelRotary
from verification.twins.hostile import hostile_config, ragged_mask, tokens
from verification.twins.pair import tensors

BOTH = [(flax_decoding, jnp.asarray), (torch_decoding, torch.tensor)]


@pytest.mark.parametrize(("decoding", "array"), BOTH, ids=["flax", "torch"])
class TestScripted:
    """A model that answers each token x with x + 1 modulo 5."""

    def successor(self, decoding, seen=None):
        def next_logits(window, left):
            if seen is not None:
                seen.append(window.shape[1])
            eye = jnp.eye(5) if decoding is flax_decoding else torch.eye(5)
            return eye[(window + 1) % 5]

        return next_logits

    def test_it_counts_on(self, decoding, array):
        prefix = array(np.array([[0, 1], [3, 4]]))
        out = decoding.extend_greedily(self.successor(decoding), prefix, 4, 100)
        np.testing.assert_array_equal(np.asarray(out), [[0, 1, 2, 3, 4, 0], [3, 4, 0, 1, 2, 3]])

    @pytest.mark.parametrize("window", [1, 2, 3])
    def test_a_short_window_slides(self, decoding, array, window):
        seen = []
        prefix = array(np.array([[0, 1]]))
        out = decoding.extend_greedily(self.successor(decoding, seen), prefix, 5, window)
        np.testing.assert_array_equal(np.asarray(out), [[0, 1, 2, 3, 4, 0, 1]])
        assert max(seen) == window

    @pytest.mark.parametrize("window", [1, 3, 100])
    def test_it_is_told_where_the_window_begins(self, decoding, array, window):
        """A model that answers each token with its place in the text, modulo 5."""

        def place(window, left):
            at = left + array(np.arange(window.shape[1]))
            eye = array(np.eye(5))
            return eye[(at + 1) % 5][None]

        out = decoding.extend_greedily(place, array(np.array([[4, 4]])), 6, window)
        np.testing.assert_array_equal(np.asarray(out), [[4, 4, 2, 3, 4, 0, 1, 2]])

    def test_the_lowest_id_wins_a_tie(self, decoding, array):
        def even(window, left):
            zeros = np.zeros((*window.shape, 5))
            zeros[..., 2:4] = 1
            return array(zeros)

        out = decoding.extend_greedily(even, array(np.array([[0]])), 2, 100)
        np.testing.assert_array_equal(np.asarray(out), [[0, 2, 2]])


def test_decoders_write_the_same(float64):
    pair = model_pair(hostile_config(), {"tokens": tokens(23, 3, 4)})
    prefix = {"tokens": tokens(23, 3, 4)}
    ours = flax_decoding.greedy(pair.flax, pair.params, prefix, 20)
    theirs = torch_decoding.greedy(pair.torch, tensors(prefix), 20)
    np.testing.assert_array_equal(np.asarray(ours), theirs.numpy(force=True))
    assert len(np.unique(np.asarray(ours))) > 5


@pytest.mark.parametrize(
    ("position", "prefixed"),
    [(Learned(), True), (TwoChannelRotary(), True), (TwoChannelRotary(), False)],
    ids=["learned", "two channels", "two channels, no prefix"],
)
def test_prefix_decoders_write_the_same(float64, position, prefixed):
    """17 tokens through a window of 13: the prefix of 2, 4 and 3 slides out of it."""
    config = hostile_config(position=position, mask=PrefixLM(), head_dim=4)
    given = {"tokens": tokens(23, 3, 4)}
    if prefixed:
        given["prefix_mask"] = np.arange(4) < np.array([[2], [4], [3]])
    pair = model_pair(config, given)
    ours = flax_decoding.greedy(pair.flax, pair.params, given, 13)
    theirs = torch_decoding.greedy(pair.torch, tensors(given), 13)
    np.testing.assert_array_equal(np.asarray(ours), theirs.numpy(force=True))
    assert len(np.unique(np.asarray(ours))) > 5


def test_what_is_written_is_the_argmax_of_the_whole_call(float64):
    """From one call of the model on the window before it: the first window, and one that slid."""
    config = hostile_config(mask=PrefixLM(), num_layers=1)
    given = {"tokens": tokens(23, 3, 4), "prefix_mask": np.arange(4) < np.array([[2], [4], [3]])}
    pair = model_pair(config, given)
    written = torch_decoding.greedy(pair.torch, tensors(given), 11).numpy(force=True)
    seen = np.pad(given["prefix_mask"], ((0, 0), (0, 11)))
    for start, end in ((0, 4), (1, 14)):
        call = {"tokens": written[:, start:end], "prefix_mask": seen[:, start:end]}
        for logits in both_logits(pair, call):
            np.testing.assert_array_equal(logits[:, -1].argmax(-1), written[:, end])


def test_encoder_decoders_write_the_same(float64):
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2)
    inputs = {
        "source": tokens(23, 3, 7),
        "target": tokens(23, 3, 1),
        "source_mask": ragged_mask(3, 7),
    }
    pair = model_pair(config, inputs)
    ours = flax_decoding.greedy(pair.flax, pair.params, inputs, 9)
    theirs = torch_decoding.greedy(pair.torch, tensors(inputs), 9)
    np.testing.assert_array_equal(np.asarray(ours), theirs.numpy(force=True))
    assert len(np.unique(np.asarray(ours))) > 3
