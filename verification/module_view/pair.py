"""A torch and a Flax module given the same weights, to be run in any dtype."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import flax.linen as flax_nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.observe import names
from parity.observe.arrays import is_float
from parity.observe.flax_side import FlaxSide
from parity.observe.points import Recording, first_line, probe_weights
from parity.observe.settings import NotComparableError
from parity.observe.torch_side import TorchSide
from parity.observe.weights import torch_parameters

Inputs = Mapping[str, Any] | Sequence[Any]
Arrays = dict[str, np.ndarray] | list[np.ndarray]
Weights = Literal["torch", "flax", "loaded"]


@dataclass
class ModulePair:
    """The two modules with the same weights, to be run in any dtype."""

    torch: nn.Module
    flax: flax_nn.Module
    torch_options: Mapping[str, Any] | None
    flax_options: Mapping[str, Any] | None
    variables: dict[str, Any] = field(default_factory=dict)

    def share_weights(
        self, variables: Mapping[str, Any] | None, inputs: Arrays, weights: Weights
    ) -> None:
        """Give both the same weights, or leave both as they are."""
        self.torch = copy.deepcopy(self.torch).double()
        template = self._initialized(inputs) if variables is None else _with_params(variables)
        named = names.to_named(template["params"])
        torch_shapes = {name: tuple(p.shape) for name, p in self.torch.named_parameters()}
        names.check_named(named, torch_shapes)
        if weights == "flax":
            self._fill_torch(named)
        self.variables = template
        if weights == "torch":
            self.variables = template | {"params": self._flax_tree(template["params"])}

    def _initialized(self, inputs: Arrays) -> dict[str, Any]:
        """What the Flax module would initialize, as it is to be filled from torch."""
        cast = _cast(inputs, np.float32)
        args, kwargs = ([], cast) if isinstance(cast, dict) else (cast, {})
        options = {k: v for k, v in (self.flax_options or {}).items() if k != "rngs"}

        def initialize() -> Any:
            return self.flax.init(jax.random.key(0), *args, **kwargs, **options)

        try:
            return dict(jax.jit(initialize)())
        except Exception as error:
            raise NotComparableError(f"the Flax side does not run: {first_line(error)}") from None

    def _fill_torch(self, named: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in self.torch.named_parameters():
                parameter.copy_(torch.tensor(np.asarray(named[name], np.float64)))

    def _flax_tree(self, template: Mapping[str, Any]) -> dict[str, Any]:
        held = torch_parameters(self.torch)
        return names.from_named(held, template)

    def sides(
        self, inputs: Arrays, dtype: str, gradients: bool, rounded: str | None = None
    ) -> tuple[FlaxSide, TorchSide]:
        """Both sides in a dtype; `rounded` rounds all numbers to a narrower one beforehand."""
        first = rounded or dtype
        params = jax.tree.map(
            lambda x: jnp.asarray(x, first).astype(dtype), dict(self.variables["params"])
        )
        state = {k: _floats_as(v, dtype) for k, v in self.variables.items() if k != "params"}
        module = copy.deepcopy(self.torch).to(getattr(torch, first)).to(getattr(torch, dtype))
        arrays = _cast(inputs, first, dtype)
        variables, probe = {"params": params, **state}, partial(probe_weights, dtype=first)
        return (
            FlaxSide(
                self.flax,
                variables,
                arrays,
                self.flax_options,
                gradients=gradients,
                probe=probe,
            ),
            TorchSide(module, arrays, self.torch_options, gradients, probe=probe),
        )

    def record_narrow(
        self, inputs: Arrays, dtype: str, gradients: bool
    ) -> tuple[Recording, Recording, Recording]:
        """Flax and torch in a lower precision, and float64's truth on the same rounded numbers."""
        flax, torch_side = self.sides(inputs, dtype, gradients)
        truth = self.sides(inputs, "float64", gradients, rounded=dtype)[1]
        return flax.record(), torch_side.record(), truth.record()

    def sizes(self) -> dict[str, float]:
        """Widths that the parameters show: a wrong scale is most often made of one of them."""
        widths = {n for p in self.torch.parameters() for n in p.shape if n > 1}
        return {f"{n}": float(n) for n in sorted(widths)}


def _floats_as(tree: Any, dtype: str) -> Any:
    """Running statistics and the like in the dtype of the run."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )


def _with_params(variables: Mapping[str, Any]) -> dict[str, Any]:
    return dict(variables) if "params" in variables else {"params": dict(variables)}


def input_arrays(inputs: Inputs) -> Arrays:
    """A model's inputs in NumPy, by position or by name."""
    if isinstance(inputs, Mapping):
        return {name: np.asarray(x) for name, x in inputs.items()}
    return [np.asarray(x) for x in inputs]


def _cast(inputs: Arrays, *dtypes: Any) -> Arrays:
    """Floating-point inputs through these dtypes one after the other."""

    def cast(array: np.ndarray) -> np.ndarray:
        for dtype in dtypes if is_float(array) else ():
            array = np.asarray(jnp.asarray(array, dtype))
        return array

    if isinstance(inputs, dict):
        return {name: cast(x) for name, x in inputs.items()}
    return [cast(x) for x in inputs]
