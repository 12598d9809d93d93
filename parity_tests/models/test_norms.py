"""Normalization: twins in float64, low-variance rows, constant rows, literals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.norms as flax_norms
import torch_reference.norms as torch_norms
from verification.twins.hostile import normal
from verification.twins.pair import Pair, torch_device

NAMES = ["LayerNorm", "RMSNorm", "StdLayerNorm"]


def pair(name: str, x: np.ndarray, eps: float = 1e-3) -> Pair:
    width = x.shape[-1]
    flax_norm, torch_norm = getattr(flax_norms, name), getattr(torch_norms, name)
    return Pair(flax_norm(width, eps), torch_norm(width, eps), {"x": x})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3], ids=["unit rows", "tiny rows", "large rows"])
def test_twins_agree(float64, ledger, name, scale):
    x = normal(2, 5, 13) + 0.7
    x[0] *= scale
    ledger(f"norms.{name}", pair(name, x).differences())


@pytest.mark.parametrize("name", NAMES)
def test_constant_rows_are_finite_with_equal_gradients(float64, ledger, name):
    x = normal(2, 5, 13)
    x[0, 0] = 3.0
    ledger(f"norms.{name}", pair(name, x).differences())


# By hand, for the row (1, 2, 6): mean 3, variance 14/3, unbiased std sqrt(7), mean square 41/3.
LITERALS = {
    "LayerNorm": (np.array([-2.0, -1.0, 3.0])) / np.sqrt(14 / 3 + 0.1),
    "RMSNorm": np.array([1.0, 2.0, 6.0]) / np.sqrt(41 / 3 + 0.1),
    "StdLayerNorm": np.array([-2.0, -1.0, 3.0]) / (np.sqrt(7) + 0.1),
}


@pytest.mark.parametrize("name", NAMES)
def test_literal_row(float64, name):
    row = np.array([[1.0, 2.0, 6.0]])
    module = getattr(flax_norms, name)(3, 0.1)
    ours = module.apply(module.init(jax.random.key(0), jnp.asarray(row)), jnp.asarray(row))
    theirs = getattr(torch_norms, name)(3, 0.1).to(torch_device(), torch.float64)(
        torch.tensor(row, device=torch_device())
    )
    np.testing.assert_allclose(ours[0], LITERALS[name], rtol=1e-15)
    np.testing.assert_allclose(theirs.numpy(force=True)[0], LITERALS[name], rtol=1e-15)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_an_offset_is_added_to_the_weight(float64, ledger, offset):
    """By hand as above, the parameter being the distance of the weight from the offset."""
    row = np.array([[1.0, 2.0, 6.0]])
    norms = flax_norms.RMSNorm(3, 0.1, offset), torch_norms.RMSNorm(3, 0.1, offset)
    twins = Pair(*norms, {"x": row})
    ledger("norms.RMSNorm", twins.differences())
    weight = offset + np.asarray(twins.params["scale"])
    np.testing.assert_allclose(twins.run_flax()["output.0"], LITERALS["RMSNorm"][None] * weight)


def test_a_fresh_norm_normalizes_alone_whatever_the_offset(float64):
    row = np.array([[1.0, 2.0, 6.0]])
    for offset in (0.0, 1.0):
        module = flax_norms.RMSNorm(3, 0.1, offset)
        ours = module.apply(module.init(jax.random.key(0), jnp.asarray(row)), jnp.asarray(row))
        theirs = torch_norms.RMSNorm(3, 0.1, offset).double()(torch.tensor(row))
        np.testing.assert_allclose(ours[0], LITERALS["RMSNorm"], rtol=1e-15)
        np.testing.assert_allclose(theirs.numpy(force=True)[0], LITERALS["RMSNorm"], rtol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_comes_back_in_its_own_type(name):
    x = normal(2, 13)
    module = getattr(flax_norms, name)(13, 1e-5)
    params = module.init(jax.random.key(0), jnp.asarray(x))
    assert module.apply(params, jnp.asarray(x, jnp.bfloat16)).dtype == jnp.bfloat16
    twin = getattr(torch_norms, name)(13, 1e-5).to(torch.bfloat16)
    assert twin(torch.tensor(x, dtype=torch.bfloat16)).dtype == torch.bfloat16
