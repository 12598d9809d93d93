"""Blocks: pre- and post-norm, with and without cross-attention."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.blocks as flax_blocks
import torch_reference.blocks as torch_blocks
import torch_reference.norms as torch_norms
from parity.observe.flax_side import compile_fast
from transformer_spec.config import (
    DeepNorm,
    LayerNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
    StdLayerNorm,
)
from verification.twins.hostile import hostile_config, normal, random_mask
from verification.twins.pair import Pair

B, T, S, D = 2, 5, 7, 13


def inputs(cross: bool) -> dict:
    given = {"x": normal(B, T, D), "mask": random_mask(B, 1, T, T)}
    if cross:
        given |= {"memory": normal(B, S, D), "memory_mask": random_mask(B, 6, T, S)}
    return given


def pair(cross: bool, **changes) -> Pair:
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2, **changes)
    return Pair(flax_blocks.Block(config, cross), torch_blocks.Block(config, cross), inputs(cross))


@pytest.mark.parametrize(
    ("residual", "norm"),
    [
        *(
            (r, n)
            for r in (PreNorm(), PostNorm())
            for n in (LayerNorm(), RMSNorm(), StdLayerNorm())
        ),
        *((r, RMSNorm(offset=1.0)) for r in (SandwichNorm(), DeepNorm(alpha=1.7))),
    ],
    ids=str,
)
@pytest.mark.parametrize("cross", [False, True], ids=["self", "self and cross"])
def test_twins_agree(float64, ledger, residual, cross, norm):
    found = pair(cross, residual=residual, norm=norm).differences()
    ledger(f"blocks.Block {type(residual).__name__}", found)


def test_a_sandwich_whose_outer_norms_give_nothing_is_the_identity(float64):
    block = pair(True, residual=SandwichNorm(), norm=RMSNorm())
    names = [name for name in block.params if name.endswith("_out_norm")]
    silent = {name: {"scale": jnp.zeros(D)} for name in names}
    given = {name: jnp.asarray(value) for name, value in block.inputs.items()}
    assert names == ["attn_out_norm", "cross_out_norm", "ffn_out_norm"]
    out, _ = compile_fast(block.call_flax)(block.params | silent, **given)
    np.testing.assert_array_equal(np.asarray(out), block.inputs["x"])


def test_deep_norm_is_post_norm_of_a_scaled_residual(float64):
    """With alpha 1 it is post-norm; with a large one the sublayers hardly count."""
    deep = {alpha: pair(False, residual=DeepNorm(alpha=alpha)) for alpha in (1.0, 1e9)}
    post = pair(False, residual=PostNorm()).run_torch()["output.0"]
    np.testing.assert_array_equal(deep[1.0].run_torch()["output.0"], post)
    far = deep[1e9]
    norm = torch_norms.LayerNorm(D, 1e-3).double()
    x = torch.tensor(far.inputs["x"])
    for name in ("attn_norm", "ffn_norm"):
        norm.load_state_dict(getattr(far.torch, name).state_dict())
        x = norm(1e9 * x)
    difference = far.run_torch()["output.0"] - x.numpy(force=True)
    assert 0 < np.abs(difference).max() < 1e-7


def test_post_norm_ends_in_a_norm_and_pre_norm_does_not(float64):
    """A post-norm block's output has the norm's own mean and variance; a pre-norm block's not."""
    for residual, normed in ((PostNorm(), True), (PreNorm(), False)):
        block = pair(True, residual=residual, norm=LayerNorm(eps=1e-12))
        last = block.params["ffn_norm"] | {"scale": jnp.ones(D), "bias": jnp.zeros(D)}
        given = {name: jnp.asarray(value) for name, value in block.inputs.items()}
        out, _ = block.call_flax(block.params | {"ffn_norm": last}, **given)
        assert np.allclose(np.mean(out, -1), 0, atol=1e-9) is normed
        assert np.allclose(np.std(out, -1), 1, atol=1e-9) is normed
