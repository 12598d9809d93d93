"""Declared distributions of fresh parameters, literally; the twins draw them alike elsewhere."""

from dataclasses import replace
from typing import get_args

import pytest

from transformer_spec.config import MixtureOfExperts, RMSNorm
from transformer_spec.initializers import (
    Fill,
    Normal,
    Scheme,
    TruncatedNormal,
    Uniform,
    distribution,
)
from transformer_spec.parameters import parameter_shapes
from transformer_spec.presets import PRESETS

GPT2, T5 = PRESETS["gpt2"].model, PRESETS["t5-small"].model


def drawn(scheme: Scheme, name: str, config=GPT2):
    return distribution(scheme, name, parameter_shapes(config), config)


def test_gpt2_makes_the_last_matrix_of_each_residual_branch_smaller():
    """Twelve layers of two branches: 1 / sqrt(24)."""
    for part in ("attn.o_proj", "ffn.down_proj"):
        assert drawn("gpt2", f"decoder.layers.11.{part}.weight") == Normal(0.02 * 24**-0.5)
    for name in ("embed", "pos_embed", "layers.0.attn.q_proj", "layers.0.ffn.up_proj"):
        assert drawn("gpt2", f"decoder.{name}.weight") == Normal(0.02)
    # Beside an encoder of 6 layers a decoder has three branches in each of its own.
    assert drawn("gpt2", "encoder.layers.0.attn.o_proj.weight", T5) == Normal(0.02 * 12**-0.5)
    assert drawn("gpt2", "decoder.layers.0.attn.o_proj.weight", T5) == Normal(0.02 * 18**-0.5)


def test_t5_draws_q_smaller_instead_of_scaling_scores():
    """d_model 512, 8 heads of 64, d_ff 2048."""
    layer = "decoder.layers.0"
    assert drawn("t5", f"{layer}.attn.q_proj.weight", T5) == Normal((512 * 64) ** -0.5)
    assert drawn("t5", f"{layer}.attn.k_proj.weight", T5) == Normal(512**-0.5)
    assert drawn("t5", f"{layer}.attn.o_proj.weight", T5) == Normal(512**-0.5)
    assert drawn("t5", f"{layer}.ffn.down_proj.weight", T5) == Normal(2048**-0.5)
    assert drawn("t5", "encoder.rel_bias.weight", T5) == Normal(512**-0.5)
    assert drawn("t5", "embed.weight", T5) == Normal(1.0)
    own_head = PRESETS["t5-v1.1-small"].model
    assert drawn("t5", "lm_head.weight", own_head) == Normal(1.0)


def test_what_the_frameworks_do_by_themselves():
    up = "decoder.layers.0.ffn.up_proj"
    assert drawn("lecun_normal", f"{up}.weight") == TruncatedNormal(768**-0.5)
    assert drawn("lecun_normal", f"{up}.bias") == Fill(0.0)
    assert drawn("lecun_normal", "decoder.embed.weight") == Normal(768**-0.5)
    assert drawn("torch_default", f"{up}.weight") == Uniform(768**-0.5)
    assert drawn("torch_default", f"{up}.bias") == Uniform(768**-0.5)
    assert drawn("torch_default", "decoder.embed.weight") == Normal(1.0)


def test_xavier_takes_q_k_and_v_for_one_matrix_and_each_expert_for_one():
    sort = PRESETS["sort"].model
    fused = drawn("xavier_uniform", "decoder.layers.0.attn.k_proj.weight", sort)
    assert fused == Uniform((6 / (128 + 3 * 128)) ** 0.5)
    experts = replace(sort, ffn=MixtureOfExperts(num_experts=5, top_k=2), ffn_bias=False)
    one = drawn("xavier_uniform", "decoder.layers.0.ffn.up_proj.weight", experts)
    assert one == Uniform((6 / (128 + 256)) ** 0.5)


@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_norms_begin_as_the_identity_and_a_tied_heads_bias_at_zero(scheme):
    assert drawn(scheme, "decoder.final_norm.weight") == Fill(1.0)
    assert drawn(scheme, "decoder.final_norm.bias") == Fill(0.0)
    shifted = replace(GPT2, norm=RMSNorm(offset=1.0))
    assert drawn(scheme, "decoder.final_norm.weight", shifted) == Fill(0.0)
    assert drawn(scheme, "lm_head.bias", PRESETS["bert-base"].model) == Fill(0.0)
