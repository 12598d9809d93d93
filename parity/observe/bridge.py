"""Parameters across the frameworks, by the rule of `transformer_spec.naming`."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.observe.points import to_numpy
from transformer_spec import naming


def to_torch(params: dict[str, Any], model: nn.Module) -> None:
    """Copy a Linen parameter tree into a torch model.

    Raises:
        ValueError: names or shapes do not match one to one; every fault is listed.
    """
    named = naming.to_named(params)
    parameters = dict(model.named_parameters())
    naming.check_named(named, {name: tuple(p.shape) for name, p in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(named[name])))


def to_flax(model: nn.Module, template: dict[str, Any]) -> dict[str, Any]:
    """A torch model's parameters as a Linen tree of the template's structure, in NumPy."""
    return naming.from_named(torch_arrays(model), template)


def torch_arrays(model: nn.Module) -> dict[str, np.ndarray]:
    """The parameters of a torch model."""
    return {name: to_numpy(p) for name, p in model.named_parameters()}


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """`torch.tensor`, for bfloat16 too, which NumPy has from ml_dtypes and torch does not read."""
    if array.dtype == jnp.bfloat16:
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The inverse of `tensor_of`."""
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy(force=True).astype(jnp.bfloat16)
    return tensor.numpy(force=True)
