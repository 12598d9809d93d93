"""A model with its arrays and inputs, recorded as a program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from parity.models.model import JaxModel, TorchModel
from parity.observe.arrays import as_tensor, is_array
from parity.programs.jax_program import record_jax
from parity.programs.program import Program
from parity.programs.torch_program import record_torch


@dataclass(frozen=True)
class Inputs:
    """What a model is called with: nested containers whose leaves are NumPy arrays or constants."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def named(self) -> dict[str, np.ndarray]:
        """The arrays by their path: "0", "batch.x"."""
        return {name: np.asarray(leaf) for name, leaf in self._leaves().items() if is_array(leaf)}

    def rebuilt(self, arrays: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments with other arrays in their places."""
        leaves = self._leaves()
        filled = [arrays.get(name, leaf) for name, leaf in leaves.items()]
        structure = jax.tree.structure((list(self.args), dict(self.kwargs)))
        return jax.tree.unflatten(structure, filled)

    def _leaves(self) -> dict[str, Any]:
        found, _ = jax.tree_util.tree_flatten_with_path((list(self.args), dict(self.kwargs)))
        return {
            jax.tree_util.keystr(path[1:], simple=True, separator="."): leaf for path, leaf in found
        }


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    """A floating-point array in another dtype; any other as it is."""
    return array.astype(jax.numpy.dtype(dtype)) if is_floating(array) else array


def is_floating(array: np.ndarray) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.floating))


def torch_program(
    model: TorchModel, arrays: Mapping[str, np.ndarray], inputs: Inputs, dtype: str
) -> Program:
    """Record a torch model on these arrays in a dtype."""
    tensors = {name: as_tensor(cast(array, dtype)) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        tensor.requires_grad_(name in model.trainable and tensor.is_floating_point())
    fed = {name: as_tensor(cast(array, dtype)) for name, array in inputs.named().items()}
    for tensor in fed.values():
        tensor.requires_grad_(tensor.is_floating_point())

    def call(tensors: Mapping[str, Any], fed: Mapping[str, Any]) -> Any:
        return model.call(tensors, *inputs.rebuilt(fed))

    return record_torch(call, tensors, fed)


def jax_program(
    model: JaxModel, arrays: Mapping[str, np.ndarray], inputs: Inputs, dtype: str
) -> Program:
    """Record a JAX model on these arrays in a dtype."""

    def call(arrays: Mapping[str, Any], fed: Mapping[str, Any]) -> Any:
        return model.call(arrays, *inputs.rebuilt(fed))

    fed = {name: cast(array, dtype) for name, array in inputs.named().items()}
    return record_jax(call, {name: cast(a, dtype) for name, a in arrays.items()}, fed)
