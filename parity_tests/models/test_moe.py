"""A mixture of experts: who is chosen, what they weigh, and the sum, against loops over tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.moe as flax_moe
import torch_reference.moe as torch_moe
from parity.observe.flax_side import compile_fast
from transformer_spec.config import MixtureOfExperts
from verification.twins.hostile import hostile_config, normal
from verification.twins.pair import Pair

B, T, D, F = 2, 5, 13, 17
BOTH = ((flax_moe, jnp.asarray), (torch_moe, torch.tensor))
SLOTS = {
    "2 of 5": MixtureOfExperts(num_experts=5, top_k=2),
    "1 of 3, not normalized": MixtureOfExperts(num_experts=3, top_k=1, normalize=False),
    "3 of 5, not normalized, gelu": MixtureOfExperts(
        num_experts=5, top_k=3, normalize=False, activation="gelu"
    ),
    "all of 3": MixtureOfExperts(num_experts=3, top_k=3),
}


def mixture(slot: MixtureOfExperts) -> Pair:
    config = hostile_config(ffn=slot, ffn_bias=False)
    return Pair(flax_moe.make_ffn(config), torch_moe.make_ffn(config), {"x": normal(B, T, D)})


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("name", SLOTS)
def test_twins_agree(float64, ledger, name):
    ledger("feed_forward.MixtureOfExperts", mixture(SLOTS[name]).differences())


@pytest.mark.parametrize("name", ["2 of 5", "1 of 3, not normalized", "all of 3"])
def test_it_is_the_sum_over_the_chosen_token_by_token(float64, name):
    """Each token alone, each of its experts alone, in NumPy."""
    slot = SLOTS[name]
    pair = mixture(slot)
    router, gate, up, down = (
        np.asarray(pair.params[n]["kernel"])
        for n in ("router", "gate_proj", "up_proj", "down_proj")
    )
    expected = np.zeros((B, T, D))
    for place in np.ndindex(B, T):
        x = pair.inputs["x"][place]
        logits = x @ router
        chosen = np.argsort(-logits)[: slot.top_k]
        weights = softmax(logits[chosen]) if slot.normalize else softmax(logits)[chosen]
        for expert, weight in zip(chosen, weights, strict=True):
            hidden = silu(x @ gate[expert]) * (x @ up[expert])
            expected[place] += weight * (hidden @ down[expert])
    np.testing.assert_allclose(pair.run_flax()["output.0"], expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(pair.run_torch()["output.0"], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("moe", "array"), BOTH, ids=["flax", "torch"])
class TestChoice:
    @pytest.mark.parametrize(
        ("logits", "top_k", "chosen"),
        [
            ([1.0, 1.0, 1.0, 1.0], 2, [1, 1, 0, 0]),
            ([0.0, 1.0, 1.0, 1.0], 2, [0, 1, 1, 0]),
            ([1.0, 0.0, 2.0, 1.0], 2, [1, 0, 1, 0]),
            ([-1.0, -1.0, -2.0, -1.0], 3, [1, 1, 0, 1]),
            ([0.0, -0.0, 0.0, -0.0], 1, [1, 0, 0, 0]),
        ],
    )
    def test_the_lowest_numbers_win_a_tie(self, moe, array, logits, top_k, chosen):
        found = np.asarray(moe.chosen_experts(array(np.array(logits)), top_k))
        np.testing.assert_array_equal(found, np.array(chosen, bool))

    def test_among_many_ties_too(self, moe, array):
        """As a stable sort has it: 64 experts, three kinds of logits."""
        logits = np.random.default_rng(0).integers(0, 3, (7, 64)).astype(float)
        first = np.argsort(-logits, axis=-1, kind="stable")[:, :20]
        found = np.asarray(moe.chosen_experts(array(logits), 20))
        np.testing.assert_array_equal(np.sort(first), [np.flatnonzero(row) for row in found])

    def test_weights_by_hand(self, moe, array):
        """Probabilities 1/2, 1/4, 1/8, 1/8: of the first two, 2/3 and 1/3 of their sum."""
        logits = array(np.log(np.array([[0.5, 0.25, 0.125, 0.125]])))
        for normalize, expected in ((True, [2 / 3, 1 / 3, 0, 0]), (False, [1 / 2, 1 / 4, 0, 0])):
            found = np.asarray(moe.expert_weights(logits, 2, normalize))
            np.testing.assert_allclose(found[0], expected, rtol=1e-6)
            assert not found[0, 2:].any()

    def test_all_experts_together_are_a_softmax(self, moe, array):
        logits = normal(B, T, 5)
        for normalize in (True, False):
            found = np.asarray(moe.expert_weights(array(logits), 5, normalize))
            expected = np.apply_along_axis(softmax, -1, logits)
            np.testing.assert_allclose(found, expected, rtol=1e-6)

    def test_weights_are_float32_or_wider(self, moe, array):
        logits = array(normal(B, T, 5))
        half = logits.astype(jnp.bfloat16) if moe is flax_moe else logits.bfloat16()
        for normalize in (True, False):
            assert str(moe.expert_weights(half, 2, normalize).dtype).endswith("float32")


def test_an_expert_nobody_chooses_has_no_gradient(float64):
    """Expert 0 has the lowest logit of every token; its weights have no effect at all."""
    pair = mixture(SLOTS["2 of 5"])
    x = jnp.abs(jnp.asarray(pair.inputs["x"]))
    router = pair.params["router"]["kernel"].at[:, 0].set(-50.0)
    params = pair.params | {"router": {"kernel": router}}
    grads = compile_fast(jax.grad(lambda p: jnp.square(pair.call_flax(p, x=x)).sum()))(params)
    for name in ("gate_proj", "up_proj", "down_proj"):
        kernel = np.abs(np.asarray(grads[name]["kernel"])).sum((1, 2))
        assert kernel[0] == 0
        assert (kernel > 0).sum() >= 2
    assert np.abs(np.asarray(grads["router"]["kernel"])).max() > 0
