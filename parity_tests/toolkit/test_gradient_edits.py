"""Equal values, other gradients: which line hands back another part of them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.align.locate import Alignment, State
from parity.explain.edits.backward import find_gradient_edit
from parity.explain.edits.edit import Edit
from parity.programs.jax_program import record_jax
from parity.programs.torch_program import record_torch


def explained(torch_call: Callable, jax_call: Callable, arrays: dict, inputs: dict) -> Edit | None:
    """The cause of the one difference of gradients between two functions of the same arrays."""
    with jax.enable_x64(True):
        tensors = {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}
        base = record_torch(torch_call, tensors, {k: torch.tensor(a) for k, a in inputs.items()})
        target = record_jax(jax_call, arrays, inputs)
        ours, theirs = base.outputs["output"], target.outputs["output"]
        state = State.start(base)
        alignment = Alignment(state, target, {ours: theirs}, 1e-10)
        assert alignment.outputs_agree()
        weights = np.random.default_rng(2).normal(size=base.values[ours].array.shape)
        adjoints = state.adjoints({ours: weights}), target.adjoints({theirs: weights})
        return find_gradient_edit(state, target, alignment.matches, *adjoints)


def torch_gate(p, inputs):
    h = inputs["x"] @ p["up"]
    gate = torch.sigmoid(h @ p["gate"])
    return (h * gate) @ p["down"]


def jax_gate(fault: str):
    def gated(p, inputs):
        h = inputs["x"] @ p["up"]
        gate = jax.nn.sigmoid(h @ p["gate"])
        if fault == "stopped":
            gate = jax.lax.stop_gradient(gate)
        if fault == "scaled":
            gate = 0.1 * gate + jax.lax.stop_gradient(0.9 * gate)
        return (h * gate) @ p["down"]

    return gated


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {n: rng.normal(size=s) for n, s in (("up", (6, 8)), ("gate", (8, 8)), ("down", (8, 3)))}


INPUTS = {"x": np.random.default_rng(1).normal(size=(5, 6))}


@pytest.mark.parametrize(("fault", "target"), [("stopped", "stopped"), ("scaled", "scaled by 0.1")])
def test_a_gradient_that_is_lost_is_named(fault, target):
    edit = explained(torch_gate, jax_gate(fault), arrays(), INPUTS)
    assert edit is not None
    assert target in edit.target
    assert edit.base_source.function == "torch_gate"


def test_equal_gradients_have_no_edit():
    assert explained(torch_gate, jax_gate(""), arrays(), INPUTS) is None


def test_a_stop_on_the_base_alone_is_named():
    def stopping(p, inputs):
        h = inputs["x"] @ p["up"]
        gate = torch.sigmoid(h @ p["gate"]).detach()
        return (h * gate) @ p["down"]

    edit = explained(stopping, jax_gate(""), arrays(), INPUTS)
    assert edit is not None
    assert "stopped" in edit.base
    assert "passes" in edit.target


def test_rounding_straight_through_is_named():
    def rounded(p, inputs):
        return torch.round(inputs["x"] @ p["up"]) @ p["gate"]

    def straight(p, inputs):
        h = inputs["x"] @ p["up"]
        return (h + jax.lax.stop_gradient(jnp.round(h) - h)) @ p["gate"]

    edit = explained(rounded, straight, arrays(), INPUTS)
    assert edit is not None
    assert "straight-through" in edit.target


def test_a_padding_row_that_is_trained_is_named():
    def padded(p, inputs):
        return torch.nn.functional.embedding(inputs["ids"], p["table"], padding_idx=0)

    def plain(p, inputs):
        return p["table"][inputs["ids"]]

    table = {"table": np.random.default_rng(0).normal(size=(6, 4))}
    edit = explained(padded, plain, table, {"ids": np.array([[0, 2, 1], [3, 0, 5]])})
    assert edit is not None
    assert "padding_idx=0" in edit.base


def test_a_copy_that_is_read_in_the_place_of_a_parameter_is_named():
    def copying(p, inputs):
        return p["table"][inputs["ids"]] @ p["table"].detach().clone().T

    def tied(p, inputs):
        return p["table"][inputs["ids"]] @ p["table"].T

    table = {"table": np.random.default_rng(0).normal(size=(7, 5))}
    edit = explained(copying, tied, table, {"ids": np.array([[1, 2, 6], [0, 3, 3]])})
    assert edit is not None
    assert edit.base.startswith("a copy of table in")
    assert edit.target.startswith("table itself in")
