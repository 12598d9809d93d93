"""Blocks: pre- and post-norm, with and without cross-attention."""

import jax.numpy as jnp
import numpy as np
import pytest

import flax_transformer.blocks as flax_blocks
import torch_reference.blocks as torch_blocks
from parity.hostile import hostile_config, normal, random_mask
from parity.twins import Pair
from transformer_spec.config import LayerNorm, PostNorm, PreNorm, RMSNorm, StdLayerNorm

B, T, S, D = 2, 5, 7, 13


def inputs(cross: bool) -> dict:
    given = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, T)}
    if cross:
        given |= {"memory": normal(B, S, D), "memory_mask": random_mask(B, 6, T, S)}
    return given


def pair(cross: bool, **changes) -> Pair:
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2, **changes)
    return Pair(flax_blocks.Block(config, cross), torch_blocks.Block(config, cross), inputs(cross))


@pytest.mark.parametrize("residual", [PreNorm(), PostNorm()], ids=["pre-norm", "post-norm"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "self and cross"])
@pytest.mark.parametrize("norm", [LayerNorm(), RMSNorm(), StdLayerNorm()], ids=str)
def test_twins_agree(float64, ledger, residual, cross, norm):
    found = pair(cross, residual=residual, norm=norm).differences()
    ledger(f"blocks.Block {type(residual).__name__}", found)


def test_post_norm_ends_in_a_norm_and_pre_norm_does_not(float64):
    """A post-norm block's output has the norm's own mean and variance; a pre-norm block's not."""
    for residual, normed in ((PostNorm(), True), (PreNorm(), False)):
        block = pair(True, residual=residual, norm=LayerNorm(eps=1e-12))
        last = block.params["ffn_norm"] | {"scale": jnp.ones(D), "bias": jnp.zeros(D)}
        given = {name: jnp.asarray(value) for name, value in block.inputs.items()}
        out = np.asarray(block.call_flax(block.params | {"ffn_norm": last}, **given))
        assert np.allclose(out.mean(-1), 0, atol=1e-9) is normed
        assert np.allclose(out.std(-1), 1, atol=1e-9) is normed
