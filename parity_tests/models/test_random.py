"""jax's random streams in torch: bits bit for bit, the rest within 4 units in the last place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity_tests.processes import run_python
from torch_reference import random
from torch_reference.erfinv import erfinv

SEEDS = (0, 7, 2**31 + 5, 2**32 - 1)
# Longer than a block, so that a stream is put together from several.
SHAPE = (101, 307)
DTYPES = [(np.float32, torch.float32), (np.float64, torch.float64)]


def words(key) -> np.ndarray:
    """The words of a key of either framework."""
    if isinstance(key, torch.Tensor):
        return key.numpy().view(np.uint32)
    return np.asarray(jax.random.key_data(key))


def units(ours: torch.Tensor, theirs: jax.Array) -> float:
    """The largest distance in units in the last place."""
    assert str(theirs.dtype) in str(ours.dtype)
    expected = np.asarray(theirs)
    return float((np.abs(ours.numpy() - expected) / np.spacing(np.abs(expected))).max())


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_and_what_is_made_of_them(seed):
    ours, theirs = random.key(seed), jax.random.key(seed)
    np.testing.assert_array_equal(words(ours), words(theirs))
    expected = np.stack([words(key) for key in jax.random.split(theirs, 5)])
    np.testing.assert_array_equal(words(random.split(ours, 5)), expected)
    data = [0, 1, 123_456, 2**31, 2**32 - 1]
    folded = np.stack([words(jax.random.fold_in(theirs, np.uint32(d))) for d in data])
    np.testing.assert_array_equal(words(random.fold_in(ours, torch.tensor(data))), folded)
    np.testing.assert_array_equal(words(random.fold_in(ours, data[2])), folded[2])


@pytest.mark.parametrize("seed", SEEDS)
def test_bits(seed):
    ours = random.bits(random.key(seed), SHAPE)
    expected = jax.random.bits(jax.random.key(seed), SHAPE, np.uint32)
    np.testing.assert_array_equal(words(ours), np.asarray(expected))


def test_bits_beyond_the_first_four_billion():
    """A counter above 2**32 is split between the words."""
    high, low = torch.tensor([1, 3]).int(), torch.tensor([5, -1]).int()
    ours = torch.stack(random.threefry(random.key(3), high, low))
    theirs = jax.extend.random.threefry_2x32(
        words(jax.random.key(3)), np.array([1, 3, 5, 2**32 - 1], np.uint32)
    )
    np.testing.assert_array_equal(words(ours).ravel(), np.asarray(theirs))


@pytest.mark.parametrize(("jax_dtype", "dtype"), DTYPES, ids=["float32", "float64"])
class TestDistributions:
    ours, theirs = random.key(11), jax.random.key(11)

    @pytest.mark.parametrize("bounds", [(0.0, 1.0), (-2.0, 2.0)])
    def test_uniform(self, float64, jax_dtype, dtype, bounds):
        found = random.uniform(self.ours, SHAPE, dtype, *bounds)
        expected = jax.random.uniform(self.theirs, SHAPE, jax_dtype, *map(jax_dtype, bounds))
        assert units(found, expected) == 0

    def test_normal(self, float64, jax_dtype, dtype):
        found = random.normal(self.ours, SHAPE, dtype)
        assert units(found, jax.random.normal(self.theirs, SHAPE, jax_dtype)) <= 4

    @pytest.mark.parametrize("bounds", [(-2.0, 2.0), (-0.5, 3.0)])
    def test_truncated_normal(self, float64, jax_dtype, dtype, bounds):
        found = random.truncated_normal(self.ours, *bounds, SHAPE, dtype)
        low, high = map(jax_dtype, bounds)
        expected = jax.random.truncated_normal(self.theirs, low, high, SHAPE, jax_dtype)
        assert units(found, expected) <= 4
        assert found.min() > bounds[0]
        assert found.max() < bounds[1]

    def test_categorical(self, float64, jax_dtype, dtype):
        logits = np.random.default_rng(0).normal(size=SHAPE).astype(jax_dtype)
        found = random.categorical(self.ours, torch.tensor(logits))
        expected = jax.random.categorical(self.theirs, jnp.asarray(logits))
        np.testing.assert_array_equal(found, np.asarray(expected))


BETWEEN = """
import jax, numpy as np, torch
jax.config.update("jax_enable_x64", True)
from torch_reference import random
for own, dtype in ((np.float32, torch.float32), (np.float64, torch.float64)):
    for low, high in ((-0.3, 0.8), (2.0, 1e5)):
        ours = random.uniform(random.key(3), (101, 307), dtype, low, high).numpy()
        theirs = jax.random.uniform(jax.random.key(3), (101, 307), own, own(low), own(high))
        assert (ours == np.asarray(theirs)).all(), (own, low, high)
print("equal")
"""


def test_uniform_between_other_bounds():
    """u (b - a) + a rounds once where XLA optimizes, as it does for users and not in this suite."""
    assert "equal" in run_python(BETWEEN)


def test_bernoulli():
    found = random.bernoulli(random.key(5), 0.3, SHAPE)
    expected = jax.random.bernoulli(jax.random.key(5), np.float32(0.3), SHAPE)
    np.testing.assert_array_equal(found, np.asarray(expected))


@pytest.mark.parametrize("length", [0, 1, 2, 7, 1000, 10_000])
def test_permutation(length):
    found = random.permutation(random.key(9), length)
    np.testing.assert_array_equal(
        found, np.asarray(jax.random.permutation(jax.random.key(9), length))
    )


@pytest.mark.parametrize(("jax_dtype", "dtype"), DTYPES, ids=["float32", "float64"])
def test_the_inverse_error_function_out_to_its_ends(float64, jax_dtype, dtype):
    near_one = 1 - 10.0 ** -np.linspace(0, 15, 400)
    x = np.concatenate([np.linspace(-1, 1, 20_001), near_one, -near_one, [1e-30, 0.0]])
    x = x.astype(jax_dtype)
    found, expected = erfinv(torch.tensor(x)), jax.lax.erf_inv(jnp.asarray(x))
    inside = np.abs(x) < 1
    assert units(found[inside], expected[inside]) <= 4
    np.testing.assert_array_equal(found[~inside], np.asarray(expected)[~inside])
