"""Blocks are pure: recomputed in the backward pass, with and without caches, nothing changes."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import flax_transformer.stacks as flax_stacks
from flax_transformer.blocks import Block
from parity.observe.flax_side import compile_fast
from torch_reference import random
from torch_reference.dropout import set_dropout_keys
from transformer_spec.config import AlternatingWindow, Rotary
from verification.twins import chunked
from verification.twins.hostile import hostile_config, ragged_mask, tokens
from verification.twins.pair import Pair

CONFIG = hostile_config(
    position=Rotary(), mask=AlternatingWindow(window=3), head_dim=6, attn_dropout=0.3
)
INPUTS = {"tokens": tokens(23, 3, 7), "token_mask": ragged_mask(3, 7)}
WEIGHTS = np.random.default_rng(3).normal(size=(3, 7, 23))
DETERMINISTIC = 8  # the place of Block's last argument, itself being 0


def twins(chunks: tuple[int, ...]) -> Pair:
    return Pair(chunked.flax_model(CONFIG, chunks), chunked.torch_model(CONFIG, chunks), INPUTS)


@pytest.mark.parametrize(
    "chunks", [(), pytest.param((3, 2, 2), marks=pytest.mark.slow)], ids=["whole", "cached"]
)
def test_flax_blocks_under_remat(float64, monkeypatch, chunks):
    pair, key = twins(chunks), jax.random.key(3)
    arrays = {name: jnp.asarray(value) for name, value in INPUTS.items()}

    def loss(params):
        options = {"deterministic": False, "rngs": {"dropout": key}}
        logits = pair.flax.apply({"params": params}, **arrays, **options)
        return (jnp.asarray(WEIGHTS) * logits).sum()

    plain = compile_fast(jax.grad(loss))(pair.params)
    assert "remat" not in str(jax.make_jaxpr(loss)(pair.params))
    monkeypatch.setattr(flax_stacks, "Block", nn.remat(Block, static_argnums=(DETERMINISTIC,)))
    recomputed = compile_fast(jax.grad(lambda params: loss(params)))(pair.params)
    assert "remat" in str(jax.make_jaxpr(lambda params: loss(params))(pair.params))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12), recomputed, plain)


@pytest.mark.parametrize("chunks", [(), (3, 2, 2)], ids=["whole", "cached"])
def test_torch_blocks_under_checkpoint(float64, chunks):
    model, calls = twins(chunks).torch.train(), []
    set_dropout_keys(model, random.key(3))
    arrays = {name: torch.tensor(value) for name, value in INPUTS.items()}

    def gradients() -> list[torch.Tensor]:
        loss = (torch.tensor(WEIGHTS) * model(**arrays)).sum()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    plain = gradients()
    for layer in model.decoder.layers:
        layer.attn.register_forward_hook(lambda *_: calls.append(1))
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    for recomputed, stored in zip(gradients(), plain, strict=True):
        torch.testing.assert_close(recomputed, stored, rtol=0, atol=0)
    assert len(calls) == 2 * CONFIG.num_layers * max(len(chunks), 1)
