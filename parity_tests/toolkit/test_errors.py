"""The comparison itself: what it measures, and what it refuses to call equal."""

import numpy as np
import pytest

from parity.judge.errors import (
    VacuousError,
    attention_layer,
    difference,
    differences,
    gradient_floors,
)

A = np.array([3.0, 4.0])


def test_the_error_is_norm_wise():
    assert difference("x", A + np.array([0, 5e-3]), A).error == pytest.approx(1e-3)
    assert difference("x", A, A).error == 0


def test_a_floor_decides_where_the_value_is_noise():
    noise = np.array([1e-17, 0.0])
    found = difference("x", noise, noise[::-1], floor=1.0, vanishes=True)
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


def attention_gradients(scale: float) -> dict[str, np.ndarray]:
    """Gradients whose q and k are `scale` times those of v, and whose key bias is noise."""
    return {
        "parameter.attn.k_proj.bias": A * 1e-17,
        "parameter.attn.q_proj.weight": A * scale,
        "parameter.attn.v_proj.weight": A,
    }


def test_gradients_of_scores_are_measured_by_their_layer():
    theirs = attention_gradients(1e-6)
    off = {
        "parameter.attn.k_proj.bias": A * 1e-17,
        "parameter.attn.q_proj.weight": A * 1e-16,
        "parameter.attn.v_proj.weight": A * 0,
    }
    found = {d.name: d for d in differences({n: theirs[n] - off[n] for n in theirs}, theirs)}
    assert found["parameter.attn.k_proj.bias"].floored
    assert found["parameter.attn.k_proj.bias"].error == pytest.approx(1e-17)
    assert found["parameter.attn.q_proj.weight"].floored
    assert found["parameter.attn.q_proj.weight"].error == pytest.approx(1e-16)
    assert not found["parameter.attn.v_proj.weight"].floored


@pytest.mark.parametrize("scale", [0.0, 1e-14])
def test_a_value_that_its_floor_drowns_is_no_comparison(scale):
    theirs = attention_gradients(scale)
    with pytest.raises(VacuousError, match=r"q_proj\.weight"):
        differences(theirs, theirs)


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


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("layers.0.attn.q_proj.weight", "layers.0.attn"),
        ("layers.0.attn.k_norm.bias", "layers.0.attn"),
        ("input of layers.0.attn.k_proj", "layers.0.attn"),
        ("layers.0.attn.k_rotated", "layers.0.attn"),
        ("layers.0.attn.scores", "layers.0.attn"),
        ("input of layers.0.cross_attn [0]", "layers.0.cross_attn"),
        ("input of layers.0.cross_attn [1]", None),
        ("output of layers.0.cross_attn [0]", None),
        ("layers.0.cross_norm.weight", None),
        ("layers.0.attn.v_proj.weight", None),
    ],
)
def test_only_what_flows_through_the_scores_alone_has_a_floor(name, layer):
    assert attention_layer(name) == layer


STACK = {
    "decoder.rel_bias.weight": 1.0,
    "decoder.layers.0.attn.v_proj.weight": 5.0,
    "decoder.layers.1.attn.o_proj.weight": 7.0,
    "decoder.layers.1.attn_norm.weight": 11.0,
    "decoder.layers.1.cross_norm.weight": 2.0,
    "decoder.layers.1.cross_attn.v_proj.weight": 13.0,
    "decoder.layers.1.ffn.up_proj.weight": 17.0,
}


def test_a_bias_on_scores_is_measured_by_all_layers_that_add_it():
    floors = gradient_floors(STACK)
    assert floors.pop("decoder.rel_bias.weight") == 7.0
    assert set(floors.values()) == {0.0}


def test_a_norm_of_queries_alone_is_measured_by_its_layer():
    """Under pre-norm, which a final norm shows: after post-norm the stream itself goes through."""
    floors = gradient_floors(STACK | {"decoder.final_norm.weight": 19.0})
    assert floors["decoder.layers.1.cross_norm.weight"] == 13.0
    assert floors["decoder.layers.1.attn_norm.weight"] == 0.0
    alone = gradient_floors({"parameter.rel_bias.weight": 1.0, "parameter.attn.k_proj.weight": 3.0})
    assert alone["parameter.rel_bias.weight"] == 3.0
