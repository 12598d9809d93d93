"""Position tables: bit-equal, right by hand, exact after any cast."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.positions as flax_positions
import torch_reference.positions as torch_positions


@pytest.mark.parametrize(("length", "width"), [(11, 8), (5000, 128), (101, 7), (3, 1)])
def test_tables_are_bit_equal(length, width):
    ours = flax_positions.sinusoidal_table(length, width)
    theirs = torch_positions.sinusoidal_table(length, width)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.shape == (length, width)
    assert ours.dtype == np.float64


@pytest.mark.parametrize("positions", [flax_positions, torch_positions])
def test_table_is_the_formula_of_the_paper(positions):
    table = positions.sinusoidal_table(200, 8)
    for t in (0, 1, 3, 199):
        for i in range(4):
            angle = t / 10000 ** (2 * i / 8)
            assert table[t, 2 * i] == pytest.approx(np.sin(angle), abs=1e-15)
            assert table[t, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-15)


def test_modules_read_the_same_rows():
    positions = np.array([[0, 4, 2], [9, 1, 1]])
    ours = flax_positions.Sinusoidal(11, 7).apply({}, jnp.asarray(positions))
    theirs = torch_positions.Sinusoidal(11, 7)(torch.tensor(positions))
    np.testing.assert_array_equal(np.asarray(ours, np.float64), theirs.numpy())


def test_the_table_survives_casts_and_stays_out_of_the_state_dict():
    module = torch_positions.Sinusoidal(11, 7)
    exact = module.table.clone()
    module.to(torch.bfloat16).to(torch.float32).half().double()
    assert torch.equal(module.table, exact)
    assert not module.state_dict()
    assert not flax_positions.Sinusoidal(11, 7).init(jax.random.key(0), jnp.arange(3))
