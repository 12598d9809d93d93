"""Structure: the written-out parameter list, both twins and the published counts agree."""

import jax
import numpy as np
import pytest
import torch

from flax_transformer.models import build_model as build_flax
from flax_transformer.training import parameter_template
from torch_reference.models import build_model as build_torch
from transformer_spec import naming, parameters
from transformer_spec.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_both_twins_have_exactly_the_declared_parameters(name):
    """Shapes alone are built; the largest preset would take a gigabyte."""
    config = PRESETS[name].model
    declared = parameters.parameter_shapes(config)
    assert naming.named_shapes(parameter_template(build_flax(config))) == declared
    with torch.device("meta"):
        model = build_torch(config)
    assert {n: tuple(p.shape) for n, p in model.named_parameters()} == declared
    assert set(model.state_dict()) == set(declared)


@pytest.mark.parametrize(
    ("name", "published"), [("transformer-base", 65e6), ("transformer-big", 213e6)]
)
def test_counts_are_those_of_the_paper(name, published):
    """Vaswani et al. 2017, Table 3, with the 37,000 tokens of section 5.1."""
    config = PRESETS[name].model
    with torch.device("meta"):
        ours = sum(p.numel() for p in build_torch(config).parameters())
    theirs = sum(leaf.size for leaf in jax.tree.leaves(parameter_template(build_flax(config))))
    assert ours == theirs == parameters.count(config)
    assert abs(ours - published) <= 0.035 * published


# Sums over the tensors of the released checkpoints, a tied tensor counted once, as their model
# cards and `transformers`' num_parameters() give them.
RELEASED = {
    "gpt2": 124_439_808,
    "bert-base": 110_106_428,
    "t5-small": 60_506_624,
    "t5-v1.1-small": 76_961_152,
    "llama-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-0.6b": 596_049_920,
    "gemma-2-2b": 2_614_341_888,
    "chatglm-6b": 6_173_286_400,
    "chatglm2-6b": 6_243_584_000,
    "glm-4-9b": 9_399_951_360,
    "bloom-560m": 559_214_592,
}


@pytest.mark.parametrize("name", RELEASED)
def test_released_models_have_their_published_number_of_parameters(name):
    assert parameters.count(PRESETS[name].model) == RELEASED[name]


def test_the_naming_rule():
    kernel = np.arange(6).reshape(2, 3)
    tree = {
        "layers_0": {"attn": {"q_proj": {"kernel": kernel, "bias": np.zeros(3)}}},
        "layers_10": {"attn_norm": {"scale": np.ones(2)}},
        "embed": {"embedding": np.ones((5, 2))},
    }
    named = naming.to_named(tree)
    assert list(named) == [
        "layers.0.attn.q_proj.weight",
        "layers.0.attn.q_proj.bias",
        "layers.10.attn_norm.weight",
        "embed.weight",
    ]
    np.testing.assert_array_equal(named["layers.0.attn.q_proj.weight"], kernel.T)
    back = naming.from_named(named, tree)
    jax.tree.map(np.testing.assert_array_equal, back, tree)
    assert naming.named_shapes(tree) == {n: a.shape for n, a in named.items()}
