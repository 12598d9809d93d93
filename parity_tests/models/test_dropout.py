"""Dropout: jax's own bits, every site by itself, nothing in evaluation."""

from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from flax_transformer.dropout import Dropout as FlaxDropout
from flax_transformer.dropout import survivors
from flax_transformer.models import build_model
from torch_reference import build_model as build_torch
from torch_reference import random
from torch_reference.dropout import Dropout as TorchDropout
from torch_reference.dropout import survivors as torch_survivors
from verification.twins.hostile import hostile_config, tokens


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(7,), (1, 1), (31, 37), (2, 3, 5, 7)])
def test_survivors_are_those_of_bernoulli(rate, shape):
    key = jax.random.key(5)
    expected = jax.random.bernoulli(key, jnp.float32(1 - rate), shape)
    np.testing.assert_array_equal(survivors(key, rate, shape), expected)
    np.testing.assert_array_equal(torch_survivors(random.key(5), rate, shape), expected)


@pytest.fixture
def narrow():
    """Without float64, which Linen's own layer would draw in."""
    enabled = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", enabled)


def test_it_drops_what_linens_own_layer_drops(narrow):
    x = jnp.ones((31, 37), jnp.float32)
    rngs = {"dropout": jax.random.key(1)}
    theirs = nn.Dropout(0.3, deterministic=False).apply({}, x, rngs=rngs)
    ours = FlaxDropout(0.3).apply({}, x, deterministic=False, rngs=rngs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def flax_dropped(rate: float, x: np.ndarray) -> np.ndarray:
    rngs = {"dropout": jax.random.key(0)}
    return np.asarray(FlaxDropout(rate).apply({}, jnp.asarray(x), deterministic=False, rngs=rngs))


def torch_dropped(rate: float, x: np.ndarray) -> np.ndarray:
    torch.manual_seed(0)
    return TorchDropout(rate)(torch.tensor(x)).numpy()


@pytest.mark.parametrize("dropped", [flax_dropped, torch_dropped])
@pytest.mark.parametrize("rate", [0.1, 0.7])
def test_the_rate_is_that_of_what_goes_and_the_mean_stays(dropped, rate):
    out = dropped(rate, np.ones((500, 400)))
    assert (out == 0).mean() == pytest.approx(rate, abs=0.005)
    np.testing.assert_allclose(out[out != 0], 1 / (1 - rate), rtol=1e-12)


@pytest.mark.parametrize("dropped", [flax_dropped, torch_dropped])
def test_rate_zero_changes_nothing(dropped):
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(dropped(0.0, x), x)


@pytest.mark.parametrize("dropped", [flax_dropped, torch_dropped])
def test_every_axis_is_dropped_independently(dropped):
    """Attention weights [B, K, G, T, S]: no two rows, heads or queries share what they lose."""
    lost = dropped(0.5, np.ones((2, 3, 2, 5, 64))) == 0
    rows = lost.reshape(-1, 64)
    assert len(np.unique(rows, axis=0)) == len(rows)


SITES = [
    "embed_dropout",
    "attn_dropout",
    "attn_out_dropout",
    "ffn_hidden_dropout",
    "ffn_out_dropout",
]


@pytest.mark.parametrize("site", SITES)
def test_each_site_acts_in_training_and_not_in_evaluation(site):
    config = replace(hostile_config(num_layers=1), **{site: 0.4})
    ids = tokens(23, 2, 5)
    model = build_model(config)
    params = model.init(jax.random.key(0), jnp.asarray(ids))

    def flax_out(seed, deterministic):
        rngs = {"dropout": jax.random.key(seed)}
        return np.asarray(
            model.apply(params, jnp.asarray(ids), deterministic=deterministic, rngs=rngs)
        )

    twin = build_torch(config)

    def torch_out(seed, deterministic):
        torch.manual_seed(seed)
        return twin.train(not deterministic)(torch.tensor(ids)).detach().numpy()

    for out in (flax_out, torch_out):
        assert not np.array_equal(out(1, False), out(2, False))
        np.testing.assert_array_equal(out(1, False), out(1, False))
        np.testing.assert_array_equal(out(1, True), out(2, True))
