"""Taps: both twins pass the same points in the same order; nothing is paid if nobody looks."""

import jax
import numpy as np
import pytest

import flax_transformer.attention
import torch_reference.attention
from parity.explain.examine import Reference
from parity.observe.points import Point
from verification.bugs.cases import CASES
from verification.twins.twin_pair import TwinPair

TAPS = ["q", "k", "v", "scores", "weights", "context"]


def sides(case: str):
    pair = TwinPair(CASES[case].config, CASES[case].inputs)
    params = pair.params()
    return pair.flax(params, "float64"), pair.torch(params, "float64")


@pytest.mark.parametrize("case", ["decoder", "encoder_decoder"])
def test_both_twins_pass_the_same_points_in_the_same_order(float64, case):
    flax, torch_side = sides(case)
    ours, theirs = flax.record(), torch_side.record()
    assert list(ours.observed) == list(theirs.observed)
    for key, passed in ours.observed.items():
        other = theirs.observed[key]
        assert passed.point == other.point
        assert [a.shape for a in passed.arrays] == [a.shape for a in other.arrays]
    inside = [p.point.name for p in ours.observed.values() if p.point.kind == "tap"]
    layer = next(name for name in inside).rpartition(".")[0]
    assert inside[: len(TAPS)] == [f"{layer}.{tap}" for tap in TAPS]


def test_a_module_called_twice_is_told_apart(float64):
    flax, _ = sides("encoder_decoder")
    calls = [p.point for p in flax.record().observed.values() if p.point.name.startswith("embed")]
    assert calls == [
        Point("embed", "input", "encoder"),
        Point("embed", "output", "embed"),
        Point("embed@2", "input", "decoder"),
        Point("embed@2", "output", "embed@2"),
    ]


def test_the_program_without_taps_is_the_same(float64, monkeypatch):
    """The lowered text of a model whose taps nobody hears is that of one without taps."""
    flax, _ = sides("decoder")

    def lowered() -> str:
        def call(params):
            return flax.module.apply({"params": params}, **flax.kwargs)

        return jax.jit(call).lower(flax.params).as_text()

    with_taps = lowered()
    monkeypatch.setattr(flax_transformer.attention, "tap", lambda name, value: value)
    assert lowered() == with_taps


def test_hooks_are_removed_and_taps_fall_silent(float64):
    _, torch_side = sides("decoder")
    torch_side.record()
    for module in torch_side.module.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    value = np.ones(3)
    assert torch_reference.attention.tap("q", value) is value


@pytest.mark.parametrize("side", [0, 1])
def test_watching_changes_no_value(float64, side):
    """Outputs and parameter gradients under observation are those of the model by itself."""
    watched = sides("decoder")[side]
    run = watched.record()
    if side == 0:
        plain = watched.module.apply({"params": watched.params}, **watched.kwargs)
    else:
        plain = watched.module(**watched.kwargs).detach()
    np.testing.assert_allclose(run.observed["", "output"].arrays[0], np.asarray(plain), rtol=1e-13)


def test_the_reference_agrees_with_itself_piece_by_piece(float64):
    """Fed its own values, every piece of code gives what it gave, and parameters the gradients."""
    flax, _ = sides("decoder")
    reference = Reference(flax)
    for key, passed in reference.recording.observed.items():
        for a, b in zip(passed.arrays, reference.local_recording.observed[key].arrays, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    for name, grad in reference.recording.parameter_gradients.items():
        if not name.endswith("k_proj.bias"):
            scale = np.abs(grad).max()
            np.testing.assert_allclose(
                grad / scale,
                reference.local_recording.parameter_gradients[name] / scale,
                atol=1e-11,
            )
