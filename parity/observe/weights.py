"""Parameters from one framework to the other, by the mapping rule (`parity.observe.names`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.observe import names
from parity.observe.arrays import to_numpy


def weights_to_torch(params: Mapping[str, Any], model: nn.Module) -> None:
    """Copy a Linen parameter tree into a torch module, in place.

    Raises:
        ValueError: names or shapes do not match one to one; every fault is listed.
    """
    named = names.to_named(params)
    parameters = dict(model.named_parameters())
    names.check_named(named, {name: tuple(p.shape) for name, p in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(named[name])))


def weights_to_flax(model: nn.Module, template: Mapping[str, Any]) -> dict[str, Any]:
    """A torch module's parameters as a Linen tree of the template's structure, in NumPy.

    Raises:
        ValueError: names or shapes do not match one to one; every fault is listed.
    """
    return names.from_named(torch_parameters(model), template)


def torch_parameters(model: nn.Module) -> dict[str, np.ndarray]:
    """The parameters of a torch module, by name."""
    return {name: to_numpy(p) for name, p in model.named_parameters()}
