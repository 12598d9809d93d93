"""Mistakes in fresh parameters."""

from functools import partial

from torch import nn

from parity.plants.plant import Plant, swapped
from torch_reference import random, training
from transformer_spec.initializers import Scheme


def _as_constructed(model: nn.Module, scheme: Scheme, key: random.Key) -> None:
    """What the constructors of torch's layers drew stays."""


PLANTS = (
    Plant(
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
)
