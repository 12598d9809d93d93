"""Feed-forward layers with every activation; the activations on a grid against their formulas."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.feed_forward as flax_ffn
import flax_transformer.moe as flax_moe
import torch_reference.feed_forward as torch_ffn
import torch_reference.moe as torch_moe
from transformer_spec import config as spec
from verification.twins.hostile import hostile_config, normal
from verification.twins.pair import Pair

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu", "sigmoid"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("slot", [spec.FeedForward, spec.GatedFeedForward])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_twins_agree(float64, ledger, activation, slot, bias):
    config = hostile_config(ffn=slot(activation=activation), ffn_bias=bias)
    pair = Pair(flax_moe.make_ffn(config), torch_moe.make_ffn(config), {"x": normal(2, 5, 13)})
    ledger(f"feed_forward.{slot.__name__}", pair.differences())


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


FORMULAS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * phi(x),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_on_a_grid(float64, name):
    grid = np.linspace(-6, 6, 241)
    expected = np.array([FORMULAS[name](x) for x in grid])
    ours = flax_ffn.ACTIVATIONS[name](jnp.asarray(grid))
    theirs = torch_ffn.ACTIVATIONS[name](torch.tensor(grid))
    np.testing.assert_allclose(ours, expected, rtol=1e-13, atol=2e-15)
    np.testing.assert_allclose(theirs.numpy(), expected, rtol=1e-13, atol=2e-15)


def test_the_two_gelus_are_not_the_same():
    grid = np.linspace(-3, 3, 61)
    gap = np.abs(flax_ffn.ACTIVATIONS["gelu"](grid) - flax_ffn.ACTIVATIONS["gelu_tanh"](grid)).max()
    assert 1e-4 < gap < 1e-3


def test_the_gate_alone_is_activated():
    """With all gates closed the layer is silent whatever `up` says; silu(up) would not be."""
    config = hostile_config(ffn=spec.GatedFeedForward(activation="relu"), ffn_bias=True)
    x = normal(2, 5, 13)
    pair = Pair(flax_moe.make_ffn(config), torch_moe.make_ffn(config), {"x": x})
    closed = pair.params | {"gate_proj": {"kernel": jnp.zeros((13, 17)), "bias": -jnp.ones(17)}}
    out = pair.call_flax(closed, x=jnp.asarray(x))
    np.testing.assert_allclose(out, np.broadcast_to(closed["down_proj"]["bias"], out.shape))
