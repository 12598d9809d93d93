"""Mistakes in fresh parameters."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import nn

from torch_reference import training
from transformer_spec import initializers, streams
from transformer_spec.config import ModelConfig
from transformer_spec.initializers import Scheme, distribution
from verification.bugs.seeded_bug import SeededBug, github, swapped

Shapes = initializers.Shapes
Distribution = initializers.Distribution


def _as_constructed(model: nn.Module, scheme: Scheme, key: streams.Words) -> None:
    """What the constructors of torch's layers drew stays."""


def _looked_up(scheme: Scheme, name: str, shapes: Shapes, config: ModelConfig) -> Distribution:
    """As a name that no parameter has in full: the last matrices of branches are as any other."""
    asked = name.replace("o_proj", "q_proj").replace("down_proj", "up_proj")
    return distribution(scheme, asked if scheme == "gpt2" else name, shapes, config)


def _exchanged(scheme: Scheme, name: str, shapes: Shapes, config: ModelConfig) -> Distribution:
    """up_proj is drawn as down_proj, and down_proj as up_proj."""
    other = {"up_proj": "down_proj", "down_proj": "up_proj"}
    part = name.split(".")[-2]
    asked = name.replace(part, other.get(part, part)) if scheme == "gpt2" else name
    return distribution(scheme, asked, shapes, config)


def _declared(wrong: Callable[..., Distribution]) -> Any:
    """The declarations of distributions as the torch twin sees them."""
    return SimpleNamespace(**vars(initializers) | {"distribution": wrong})


BUGS = (
    SeededBug(
        id="INI-01",
        name="Parameters as the framework draws them",
        component="initialization",
        sources=(
            "https://github.com/google/flax/pull/215",
            "https://github.com/jax-ml/jax/issues/4862",
            "https://github.com/n2cholas/jax-resnet/issues/3",
        ),
        how="The scheme of the config is not applied: torch's own defaults stay, biases included.",
        case="decoder",
        at="init",
        cause="std of embed.weight",
        install=partial(swapped, training, "init_params", _as_constructed),
    ),
    SeededBug(
        id="INI-02",
        name="Smaller residual weights that no name asks for",
        component="initialization",
        sources=github("huggingface/transformers/issues/47458"),
        how="The last matrices of residual branches are looked for by whole name: none is smaller.",
        case="deep",
        at="init",
        cause=r"std of (o_proj|down_proj).weight 0\.0(19|20)\d*, where the reference has 0\.004",
        install=partial(swapped, training, "initializers", _declared(_looked_up)),
    ),
    SeededBug(
        id="INI-03",
        name="Up projection made smaller for the down projection",
        component="initialization",
        sources=github("karpathy/llama2.c/issues/579"),
        how="The first matrix of the feed-forward is drawn smaller with depth, not the last.",
        case="deep",
        at="init",
        cause=r"std of up_proj.weight 0\.004\d*, where the reference has 0\.0[12]",
        install=partial(swapped, training, "initializers", _declared(_exchanged)),
    ),
)
