"""Greedy decoding: scripted logits, the window, and the same tokens from both twins."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.decoding as flax_decoding
import torch_reference.decoding as torch_decoding
from parity.hostile import hostile_config, ragged_mask, tokens
from parity.twins import tensors
from parity_tests.test_models import model_pair

BOTH = [(flax_decoding, jnp.asarray), (torch_decoding, torch.tensor)]


@pytest.mark.parametrize(("decoding", "array"), BOTH, ids=["flax", "torch"])
class TestScripted:
    """A model that answers each token x with x + 1 modulo 5."""

    def successor(self, decoding, seen=None):
        def next_logits(window):
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

    def test_the_lowest_id_wins_a_tie(self, decoding, array):
        def even(window):
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
