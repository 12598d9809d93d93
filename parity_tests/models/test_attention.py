"""Attention: every grouping, mask and temperature, in float64; literals; fully masked rows."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.attention as flax_attention
import torch_reference.attention as torch_attention
from transformer_spec.config import LayerNorm, RMSNorm, StdLayerNorm
from verification.twins.hostile import hostile_config, normal, random_mask
from verification.twins.pair import Pair, function_differences

B, T, S, H, D = 2, 5, 7, 3, 13


def qkv(heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    return {
        "q": normal(B, T, heads, H),
        "k": normal(B, S, kv_heads, H),
        "v": normal(B, S, kv_heads, H, seed=4),
    }


def attend(module, mask, temperature):
    return partial(module.dot_product_attention, mask=mask, scale=H**-0.5, temperature=temperature)


MASKS = {
    "none": None,
    "one for all heads": random_mask(B, 1, T, S),
    "one per head": random_mask(B, 6, T, S),
    "one for all queries": random_mask(B, 1, 1, S)[:, :, :, :],
}


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1], ids=lambda k: f"6 heads on {k}")
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_function(float64, ledger, kv_heads, mask, temperature):
    device = torch.device("cuda") if jax.default_backend() == "gpu" else torch.device("cpu")
    ours = None if mask is None else jnp.asarray(mask)
    theirs = None if mask is None else torch.tensor(mask, device=device)
    ledger(
        "attention.dot_product_attention",
        function_differences(
            attend(flax_attention, ours, temperature),
            attend(torch_attention, theirs, temperature),
            qkv(6, kv_heads),
        ),
    )


@pytest.mark.parametrize("kv_heads", [None, 3, 1], ids=["multi-head", "grouped", "multi-query"])
@pytest.mark.parametrize("memory", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_module(float64, ledger, kv_heads, memory, bias):
    config = hostile_config(num_kv_heads=kv_heads, qkv_bias=bias, out_bias=bias)
    inputs = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, S if memory else T)}
    if memory:
        inputs["memory"] = normal(B, S, D)
    pair = Pair(flax_attention.Attention(config), torch_attention.Attention(config), inputs)
    ledger("attention.Attention", pair.differences())


@pytest.mark.parametrize("norm", [LayerNorm(), RMSNorm(offset=1.0), StdLayerNorm()], ids=str)
def test_queries_and_keys_are_normalized_head_by_head(float64, ledger, norm):
    """To multiply the queries of one head changes nothing."""
    config = hostile_config(qk_norm=True, norm=replace(norm, eps=1e-14))
    inputs = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, T)}
    pair = Pair(flax_attention.Attention(config), torch_attention.Attention(config), inputs)
    ledger("attention.Attention, normalized", pair.differences())
    before = pair.run_torch()["output.0"]
    with torch.no_grad():
        for parameter in pair.torch.q_proj.parameters():
            parameter[: config.head_size] *= 7
    np.testing.assert_allclose(pair.run_torch()["output.0"], before, rtol=1e-10)


def test_weights_are_those_of_the_formula():
    """By hand: scores 0 and ln 3, so weights 1/4 and 3/4."""
    q = np.array([[[[1.0]]]])
    k = np.array([[[[0.0]], [[np.log(3.0)]]]])
    v = np.array([[[[8.0]], [[4.0]]]])
    for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
        out, weights = module.dot_product_attention(array(q), array(k), array(v), scale=1.0)
        np.testing.assert_allclose(np.asarray(weights)[0, 0, 0], [0.25, 0.75], rtol=1e-6)
        np.testing.assert_allclose(np.asarray(out)[0, 0, 0], [5.0], rtol=1e-6)


def test_a_bias_is_added_to_the_scaled_scores():
    """By hand: scores 0 and 0, a bias of 0 and ln 3, halved by a temperature of 2."""
    q, k = np.zeros((1, 1, 1, 1)), np.zeros((1, 2, 1, 1))
    v = np.array([[[[8.0]], [[4.0]]]])
    bias = np.array([[[[0.0, np.log(3.0)]]]])
    for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
        arrays = [array(x) for x in (q, k, v)]
        for temperature, share in ((1.0, 0.75), (2.0, np.sqrt(3) / (1 + np.sqrt(3)))):
            _, weights = module.dot_product_attention(
                *arrays, scale=0.1, bias=array(bias), temperature=temperature
            )
            expected = [1 - share, share]
            np.testing.assert_allclose(np.asarray(weights)[0, 0, 0], expected, rtol=1e-6)


def test_a_bias_has_a_head_for_every_query_head():
    """Four query heads on two key heads: each reads its own bias."""
    q, k = np.zeros((1, 1, 4, H)), np.zeros((1, 2, 2, H))
    bias = np.array([1.0, 2.0, 3.0, 4.0])[None, :, None, None] * np.array([0.0, 1.0])
    for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
        _, weights = module.dot_product_attention(
            array(q), array(k), array(k), scale=1.0, bias=array(bias)
        )
        odds = np.asarray(weights)[0, :, 0, 1] / np.asarray(weights)[0, :, 0, 0]
        np.testing.assert_allclose(odds, np.exp([1, 2, 3, 4]), rtol=1e-5)


def test_temperature_evens_out_or_sharpens():
    def weights(temperature):
        x = qkv(6, 6)
        found = []
        for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
            arrays = {name: array(value) for name, value in x.items()}
            _, w = module.dot_product_attention(**arrays, scale=1.0, temperature=temperature)
            found.append(np.asarray(w))
        return found

    for hot, warm, cold in zip(weights(1e6), weights(1.0), weights(1e-6), strict=True):
        np.testing.assert_allclose(hot, 1 / S, atol=1e-4)
        np.testing.assert_allclose(cold.max(-1), 1.0)
        assert (hot.max(-1) < warm.max(-1)).all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_of_zero_or_less_is_refused(temperature):
    for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
        arrays = {name: array(value) for name, value in qkv(6, 6).items()}
        with pytest.raises(ValueError, match="temperature: "):
            module.dot_product_attention(**arrays, scale=1.0, temperature=temperature)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_query_that_may_see_nothing_gives_zeros_and_zero_gradients(dtype):
    mask = np.ones((B, 1, T, S), bool)
    mask[0, 0, 2] = False

    def flax_loss(q, k, v):
        arrays = [jnp.asarray(a, dtype) for a in (q, k, v)]
        out, weights = flax_attention.dot_product_attention(*arrays, jnp.asarray(mask), scale=1.0)
        return (out * out).sum().astype(jnp.float32), (out, weights)

    arrays = [jnp.asarray(a, jnp.float32) for a in qkv(6, 3).values()]
    (_, (out, weights)), grads = jax.value_and_grad(flax_loss, (0, 1, 2), has_aux=True)(*arrays)
    assert not np.asarray(out, np.float32)[0, 2].any()
    assert not np.asarray(weights, np.float32)[0, :, 2].any()
    assert not np.asarray(grads[0])[0, 2].any()
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in grads)

    leaves = [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in qkv(6, 3).values()]
    half = [leaf.to(getattr(torch, dtype)) for leaf in leaves]
    out, weights = torch_attention.dot_product_attention(*half, torch.tensor(mask), scale=1.0)
    (out * out).sum().float().backward()
    assert not out[0, 2].any()
    assert not weights[0, :, 2].any()
    assert not leaves[0].grad[0, 2].any()
    assert all(leaf.grad.isfinite().all() and leaf.grad.abs().max() > 0 for leaf in leaves)


def test_grouped_heads_read_the_key_head_of_their_own_group():
    """Query heads 0, 1 share key/value head 0 and 2, 3 head 1: not 0, 2 and 1, 3."""
    q, k = np.zeros((1, 1, 4, H)), np.zeros((1, 1, 2, H))
    v = np.stack([np.full((1, 1, H), 1.0), np.full((1, 1, H), 2.0)], axis=2)
    for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
        out, _ = module.dot_product_attention(array(q), array(k), array(v), scale=1.0)
        np.testing.assert_array_equal(np.asarray(out)[0, 0, :, 0], [1, 1, 2, 2])


def test_dropout_is_on_the_weights_that_multiply_v_alone():
    x = qkv(6, 6)
    for module, array in ((flax_attention, jnp.asarray), (torch_attention, torch.tensor)):
        arrays = {name: array(value) for name, value in x.items()}
        whole, weights = module.dot_product_attention(**arrays, scale=1.0)
        half, kept = module.dot_product_attention(**arrays, scale=1.0, dropout=lambda w: w * 0.5)
        np.testing.assert_allclose(np.asarray(half), np.asarray(whole) / 2, rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(kept), np.asarray(weights))
