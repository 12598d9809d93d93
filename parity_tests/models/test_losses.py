"""Cross-entropy: twins, by hand, smoothing, masks, ignored labels."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.losses as flax_losses
import torch_reference.losses as torch_losses
from parity.judge.errors import relative_error
from parity.judge.precision import rounding_floor
from verification.twins import roundings
from verification.twins.hostile import normal, ragged_mask, tokens
from verification.twins.pair import function_differences, torch_device

B, T, V = 3, 5, 7
BOTH = ((flax_losses, jnp.asarray), (torch_losses, torch.tensor))


def loss(module, array, labels, mask, smoothing):
    return partial(
        module.cross_entropy,
        labels=array(labels),
        label_mask=array(mask),
        label_smoothing=smoothing,
    )


def on_device(array):
    return torch.tensor(array, device=torch_device())


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_twins_agree(float64, ledger, smoothing):
    labels, mask = tokens(V, B, T), ragged_mask(B, T)
    labels[~mask] = -100
    ledger(
        "losses.cross_entropy",
        function_differences(
            loss(flax_losses, jnp.asarray, labels, mask, smoothing),
            loss(torch_losses, on_device, labels, mask, smoothing),
            {"logits": 3 * normal(B, T, V)},
        ),
    )


@pytest.mark.parametrize("masked", [False, True], ids=["no padding", "padding"])
def test_router_losses_agree(float64, ledger, masked):
    mask = ragged_mask(B, T) if masked else None

    def loss(module, array):
        given = None if mask is None else array(mask)
        return lambda **layers: module.router_loss(list(layers.values()), 2, given)

    layers = {f"layer {i}": normal(B, T, 5, seed=i) for i in range(3)}
    ledger(
        "losses.router_loss",
        function_differences(loss(flax_losses, jnp.asarray), loss(torch_losses, on_device), layers),
    )


@pytest.mark.parametrize(("module", "array"), BOTH, ids=["flax", "torch"])
class TestByHand:
    def test_even_logits_cost_log_v(self, module, array):
        logits, labels = array(np.zeros((1, 1, 8))), array(np.array([[3]]))
        for smoothing in (0.0, 0.1):
            cost = module.cross_entropy(logits, labels, array(np.array([[True]])), smoothing)
            assert float(cost) == pytest.approx(np.log(8), rel=1e-6)

    def test_smoothing_spreads_over_all_classes(self, module, array):
        """p = 0.9 + 0.1/4 on the label and 0.1/4 on each of the other three."""
        logits = np.log(np.array([[[0.4, 0.3, 0.2, 0.1]]]))
        cost = module.cross_entropy(
            array(logits), array(np.array([[1]])), array(np.array([[True]])), 0.1
        )
        p = np.array([0.025, 0.925, 0.025, 0.025])
        assert float(cost) == pytest.approx(-(p * logits[0, 0]).sum(), rel=1e-6)

    def test_the_mean_is_over_unmasked_tokens(self, module, array):
        logits, labels = normal(B, T, V), tokens(V, B, T)
        mask = ragged_mask(B, T)
        each = np.asarray(module.token_losses(array(logits), array(labels)))
        cost = module.cross_entropy(array(logits), array(labels), array(mask))
        assert float(cost) == pytest.approx(each[mask].mean(), rel=1e-6)

    def test_ignored_labels_are_never_looked_up(self, module, array):
        logits, labels = normal(B, T, V), tokens(V, B, T)
        mask = ragged_mask(B, T)
        costs = []
        for junk in (0, -1, -100, 10**6):
            labels[~mask] = junk
            costs.append(float(module.cross_entropy(array(logits), array(labels), array(mask))))
        assert len(set(costs)) == 1
        assert np.isfinite(costs[0])

    def test_no_tokens_cost_nothing(self, module, array):
        mask = array(np.zeros((B, T), bool))
        assert (
            float(module.cross_entropy(array(normal(B, T, V)), array(tokens(V, B, T)), mask)) == 0
        )

    def test_correct_tokens_are_counted_where_the_mask_is_true(self, module, array):
        logits = np.eye(4)[np.array([[0, 1, 2, 3]])]
        labels = np.array([[0, 1, 0, 3]])
        mask = np.array([[True, True, True, False]])
        assert int(module.count_correct(array(logits), array(labels), array(mask))) == 2

    def test_exact_rows_are_right_wherever_they_count(self, module, array):
        logits = np.eye(4)[np.array([[0, 1, 2], [0, 1, 2], [0, 1, 2]])]
        labels = np.array([[0, 1, 2], [0, 1, 3], [3, 3, 3]])
        mask = np.array([[True, True, True], [True, True, False], [False, False, False]])
        assert int(module.count_exact(array(logits), array(labels), array(mask))) == 2
        mask[1, 2] = True
        assert int(module.count_exact(array(logits), array(labels), array(mask))) == 1

    def test_a_router_that_treats_all_alike_costs_top_k(self, module, array):
        """Equal logits go to the first experts, with probability 1 / E each: E k (1 / E)."""
        logits = array(np.zeros((B, T, 5)))
        for top_k in (1, 2, 5):
            cost = float(module.balance_loss(logits, top_k, None))
            assert cost == pytest.approx(top_k, rel=1e-6)

    def test_the_balance_loss_by_hand(self, module, array):
        """Probabilities 3/4 and 1/4, 1/2 and 1/2 (a tie), 1/4 and 3/4, padding."""
        logits = np.log([[[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [1e-9, 1.0]]])
        mask = np.array([[True, True, True, False]])
        cost = float(module.balance_loss(array(logits), 1, array(mask)))
        assert cost == pytest.approx(2 * (2 / 3 * 1.5 / 3 + 1 / 3 * 1.5 / 3), rel=1e-6)
        whole = float(module.balance_loss(array(logits), 1, None))
        assert whole == pytest.approx(2 * (2 / 4 * 1.5 / 4 + 2 / 4 * 2.5 / 4), rel=1e-6)

    def test_padding_does_not_change_the_balance_loss(self, module, array):
        logits, mask = normal(B, T, 5), ragged_mask(B, T)
        moved = np.where(mask[..., None], logits, -7 * logits)
        costs = [float(module.balance_loss(array(x), 2, array(mask))) for x in (logits, moved)]
        assert costs[0] == costs[1] != float(module.balance_loss(array(logits), 2, None))
        nothing = array(np.zeros((B, T), bool))
        assert float(module.balance_loss(array(logits), 2, nothing)) == 0

    def test_the_router_loss_is_the_mean_of_its_layers(self, module, array):
        """Two layers that use one expert each, but not the same: each has the largest loss."""
        one, other = 50 * np.eye(2)[[[0, 0, 0]]], 50 * np.eye(2)[[[1, 1, 1]]]
        cost = float(module.router_loss([array(one), array(other)], 1, None))
        assert cost == pytest.approx(2.0, rel=1e-6)

    def test_labels_are_shifted_right(self, module, array):
        labels = array(np.array([[5, -100, 6, 7], [8, 9, -100, -1], [3, 4, 5, 6]]))
        inputs = np.asarray(module.shift_right(labels, 2, 0))
        np.testing.assert_array_equal(inputs, [[2, 5, 0, 6], [2, 8, 9, 0], [2, 3, 4, 5]])


def test_smoothing_equals_torchs_own():
    logits, labels = normal(B, T, V), tokens(V, B, T)
    theirs = torch.nn.functional.cross_entropy(
        torch.tensor(logits).flatten(0, 1), torch.tensor(labels).flatten(), label_smoothing=0.1
    )
    for module, array in BOTH:
        ours = module.cross_entropy(array(logits), array(labels), array(np.ones((B, T), bool)), 0.1)
        assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def test_half_precision_logits_are_summed_in_float32():
    logits = jnp.asarray(normal(1, 1, 1009), jnp.bfloat16)
    label = jnp.zeros((1, 1), jnp.int32)
    assert flax_losses.token_losses(logits, label).dtype == jnp.float32
    half = torch.tensor(np.asarray(logits, np.float32)).bfloat16()
    theirs = torch_losses.token_losses(half, torch.zeros(1, 1, dtype=torch.long))
    assert theirs.dtype == torch.float32
    np.testing.assert_allclose(
        np.asarray(flax_losses.token_losses(logits, label)), theirs.numpy(), rtol=1e-6
    )


def test_where_a_model_is_sure_its_gradient_is_precise(float64):
    """By a factor that all tokens share: softmax - p is small, and errors alike in all add up.

    With torch's log_softmax, which sums p over the classes, its error is 6e-5.
    """
    classes = 4096
    rows = normal(classes, 32)
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    labels = tokens(classes, 4, 64)
    logits = (20 * rows[labels] @ rows.T).astype(np.float32)

    def gradient(module, array, grad, dtype):
        given, mask = array(logits.astype(dtype)), array(np.ones_like(labels, bool))
        cost = partial(module.cross_entropy, labels=array(labels), label_mask=mask)
        by_factor = grad(lambda x: cost(x * given, label_smoothing=0.1))
        return np.asarray(by_factor(array(np.ones((1, 1, 1), dtype))))

    truth = gradient(flax_losses, jnp.asarray, jax.grad, "float64")
    allowed = rounding_floor("float32", roundings.loss(classes, labels.size))
    for module, array, grad in (
        (flax_losses, jnp.asarray, jax.grad),
        (torch_losses, torch.tensor, torch.func.grad),
    ):
        found = gradient(module, array, grad, "float32")
        assert found.dtype == np.float32
        assert relative_error(found.astype(np.float64), truth) <= allowed


def test_a_masked_token_has_no_gradient():
    mask = ragged_mask(B, T)
    labels = tokens(V, B, T)
    grad = jax.grad(flax_losses.cross_entropy)(
        jnp.asarray(normal(B, T, V)), jnp.asarray(labels), jnp.asarray(mask), 0.1
    )
    assert (np.abs(np.asarray(grad)).sum(-1) > 0)[mask].all()
    assert not np.asarray(grad)[~mask].any()
