"""The comparison itself: what it measures, and what it refuses to call equal."""

import numpy as np
import pytest

from parity.compare import VacuousError, as_good, difference, differences, float32_floor

A = np.array([3.0, 4.0])


def test_the_error_is_norm_wise():
    assert difference("x", A + np.array([0, 5e-3]), A).error == pytest.approx(1e-3)
    assert difference("x", A, A).error == 0


def test_a_floor_decides_where_the_value_is_noise():
    found = difference("x", np.array([1e-17, 0.0]), np.array([0.0, 1e-17]), floor=1.0)
    assert found.floored
    assert found.error < 1e-16


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(A, A * 0), (A * 0, A * 0), (A, np.array([2.0, 2.0]))],
)
def test_nothing_is_proved_by_zeros_or_constants(ours, theirs):
    with pytest.raises(VacuousError, match="x: "):
        difference("x", ours, theirs)


@pytest.mark.parametrize("factor", [np.nan, np.inf])
def test_nan_and_infinities_are_never_equal(factor):
    for ours, theirs in ((A * factor, A), (A, A * factor), (A * factor, A * factor)):
        with pytest.raises(FloatingPointError, match="x: a side is not finite"):
            difference("x", ours, theirs)


def test_shapes_and_names_must_be_the_same():
    with pytest.raises(ValueError, match=r"x: shapes \(2,\) and \(3,\) differ"):
        difference("x", A, np.ones(3))
    with pytest.raises(ValueError, match=r"only on one side: \['y'\]"):
        differences({"x": A, "y": A}, {"x": A})


def test_a_key_bias_is_measured_by_its_layer():
    theirs = {"parameter.attn.k_proj.bias": A * 1e-17, "parameter.attn.q_proj.weight": A}
    ours = theirs | {"parameter.attn.k_proj.bias": -A * 1e-17}
    found = {d.name: d for d in differences(ours, theirs)}
    assert found["parameter.attn.k_proj.bias"].floored
    assert found["parameter.attn.k_proj.bias"].error < 1e-16
    assert not found["parameter.attn.q_proj.weight"].floored


def test_float32_errors_are_held_against_each_other():
    floor = float32_floor()
    assert as_good(2e-6, 1e-6)
    assert as_good(floor, 0.0)
    assert not as_good(2e-6 + 2 * floor, 1e-6)


def test_annotations_are_checked_in_this_run():
    """pytest's run-time check of shapes is on: a wrong rank does not pass silently."""
    import jax.numpy as jnp
    import torch
    from jaxtyping import TypeCheckError

    from flax_transformer.masks import padding_mask as flax_padding
    from torch_reference.masks import padding_mask as torch_padding

    with pytest.raises(TypeCheckError):
        flax_padding(jnp.ones((2, 3, 4), bool))
    with pytest.raises(TypeCheckError):
        torch_padding(torch.ones(2, 3, 4, dtype=torch.bool))
