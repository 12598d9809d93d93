"""The settings of rotary positions, in the forms of transformers 4 and 5."""

import pytest
import torch
import transformers

from parity_tests.hub.family_cases import DECODER, LLAMA3, YARN
from transformer_hub import families
from transformer_spec.config import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    Rotary,
    YarnScaling,
)

LLAMA = DECODER | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": 4}


FORMS = {
    "theta": ({"rope_theta": 5e5, "rope_scaling": None}, Rotary(theta=5e5)),
    "nothing": ({}, Rotary(theta=10000.0)),
    "default": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 2e4}},
        Rotary(theta=2e4, scaling=NoScaling()),
    ),
    "linear": (
        {"rope_scaling": {"type": "linear", "factor": 2}},
        Rotary(scaling=LinearScaling(factor=2.0)),
    ),
    "llama3": (
        {"rope_theta": 5e5, "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"}},
        Rotary(
            theta=5e5,
            scaling=Llama3Scaling(
                factor=8.0, low_freq_factor=1.5, high_freq_factor=3.0, original_max_seq_len=16
            ),
        ),
    ),
    "yarn": (
        {"rope_parameters": YARN},
        Rotary(
            theta=5e5,
            scaling=YarnScaling(
                factor=4.0,
                original_max_seq_len=10,
                beta_fast=20.0,
                beta_slow=2.0,
                attention_factor=1.5,
            ),
        ),
    ),
    "yarn's defaults": (
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "finetuned": True}},
        Rotary(scaling=YarnScaling(factor=4.0, original_max_seq_len=41)),
    ),
    "original length beside it": (
        {
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": None},
            "original_max_position_embeddings": 12,
        },
        Rotary(scaling=YarnScaling(factor=4.0, original_max_seq_len=12)),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_rotary_settings_of_either_release(form):
    settings, expected = FORMS[form]
    llama = families.FAMILIES["llama"]
    config = llama.read_config(LLAMA | settings)
    assert config.position == expected
    written = llama.write_config(config, LLAMA | settings)
    theirs = transformers.LlamaConfig(**(LLAMA | settings))
    again = transformers.LlamaConfig(**written)
    frequencies, factor = rope(theirs)
    found, found_factor = rope(again)
    assert torch.equal(frequencies, found)
    assert factor == found_factor
    # Each form by itself, as either release reads it.
    old = {k: v for k, v in written.items() if k != "rope_parameters"}
    new = {k: v for k, v in written.items() if k not in ("rope_theta", "rope_scaling")}
    assert llama.read_config(old) == llama.read_config(new) == config


def rope(config) -> tuple[torch.Tensor, float]:
    module = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    return module.inv_freq, module.attention_scaling


@pytest.mark.parametrize(("above", "below"), [(1.3, 0.7), (0.7, None), (None, 0.7)])
def test_deepseeks_coefficients_become_one_factor(above, below):
    scaling = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 16}
    settings = LLAMA | {"rope_scaling": scaling | {"mscale": above, "mscale_all_dim": below}}
    llama = families.FAMILIES["llama"]
    written = llama.write_config(llama.read_config(settings), settings)
    assert (
        rope(transformers.LlamaConfig(**written))[1]
        == rope(transformers.LlamaConfig(**settings))[1]
    )
