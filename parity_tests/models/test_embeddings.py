"""Token embeddings and the head tied to them."""

import numpy as np
import pytest

import flax_transformer.embeddings as flax_embeddings
import torch_reference.embeddings as torch_embeddings
from verification.twins.hostile import hostile_config, normal, tokens
from verification.twins.pair import Pair


@pytest.mark.parametrize("scaled", [False, True])
def test_lookup(float64, ledger, scaled):
    config = hostile_config(scale_embeddings=scaled)
    inputs = {"tokens": tokens(23, 2, 5)}
    pair = Pair(flax_embeddings.Embed(config), torch_embeddings.Embed(config), inputs)
    ledger("embeddings.Embed", pair.differences())
    table = np.asarray(pair.params["embedding"])
    expected = table[inputs["tokens"]] * (np.sqrt(13) if scaled else 1)
    np.testing.assert_allclose(pair.run_flax()["output.0"], expected, rtol=1e-15)


def test_tied_head(float64, ledger):
    """The head reads the table unscaled, whatever the lookup does."""
    config = hostile_config(scale_embeddings=True, tie_embeddings=True)
    modules = flax_embeddings.Embed(config), torch_embeddings.Embed(config)
    pair = Pair(*modules, {"hidden": normal(2, 5, 13)}, method="attend")
    ledger("embeddings.Embed.attend", pair.differences())
    expected = pair.inputs["hidden"] @ np.asarray(pair.params["embedding"]).T
    np.testing.assert_allclose(pair.run_torch()["output.0"], expected, rtol=1e-12)


def test_a_scaled_head_scales_what_it_reads(float64, ledger):
    """By d_model**-0.5, and the lookup is not touched."""
    config = hostile_config(tie_embeddings=True, scale_head=True)
    modules = flax_embeddings.Embed(config), torch_embeddings.Embed(config)
    pair = Pair(*modules, {"hidden": normal(2, 5, 13)}, method="attend")
    ledger("embeddings.Embed.attend", pair.differences())
    expected = pair.inputs["hidden"] @ np.asarray(pair.params["embedding"]).T / np.sqrt(13)
    np.testing.assert_allclose(pair.run_torch()["output.0"], expected, rtol=1e-12)
    ids = tokens(23, 2, 5)
    looked_up = Pair(*modules, {"tokens": ids}).run_flax()["output.0"]
    np.testing.assert_array_equal(looked_up, np.asarray(pair.params["embedding"])[ids])
