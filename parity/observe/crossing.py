"""A torch and a Flax module given the same weights, to be run in any dtype."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import flax.linen as flax_nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.judge.values import Value, values
from parity.observe import bridge
from parity.observe.flax_side import FlaxSide
from parity.observe.points import first_line, is_float
from parity.observe.renames import require_matching
from parity.observe.settings import NotComparableError
from parity.observe.torch_side import TorchSide
from transformer_spec import naming

Inputs = Mapping[str, Any] | Sequence[Any]
Arrays = dict[str, np.ndarray] | list[np.ndarray]
Weights = Literal["torch", "flax", "loaded"]


@dataclass
class Models:
    """The two modules with the same weights, to be run in any dtype."""

    torch: nn.Module
    flax: flax_nn.Module
    rename: Callable[[str], str]
    torch_options: Mapping[str, Any] | None
    flax_options: Mapping[str, Any] | None
    variables: dict[str, Any] = field(default_factory=dict)

    def cross(self, variables: Mapping[str, Any] | None, inputs: Arrays, weights: Weights) -> None:
        """Give both the same weights, or leave both as they are."""
        self.torch = copy.deepcopy(self.torch).double()
        template = self._template(inputs) if variables is None else _wrapped(variables)
        named = {self.rename(n): v for n, v in naming.to_named(template["params"]).items()}
        theirs = {name: tuple(p.shape) for name, p in self.torch.named_parameters()}
        shapes = naming.named_shapes(template["params"])
        require_matching({self.rename(n): s for n, s in shapes.items()}, theirs)
        if weights == "flax":
            self._fill_torch(named)
        self.variables = template
        if weights == "torch":
            self.variables = template | {"params": self._flax_tree(template["params"])}

    def _template(self, inputs: Arrays) -> dict[str, Any]:
        """What the Flax module would initialize, as it is to be filled from torch."""
        args, kwargs = _call(_cast(inputs, np.float32))
        options = {k: v for k, v in (self.flax_options or {}).items() if k != "rngs"}

        def init() -> Any:
            return self.flax.init(jax.random.key(0), *args, **kwargs, **options)

        try:
            return dict(jax.jit(init)())
        except Exception as error:
            raise NotComparableError(f"the Flax side does not run: {first_line(error)}") from None

    def _fill_torch(self, named: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in self.torch.named_parameters():
                parameter.copy_(torch.tensor(np.asarray(named[name], np.float64)))

    def _flax_tree(self, template: Mapping[str, Any]) -> dict[str, Any]:
        theirs = bridge.torch_arrays(self.torch)
        names = naming.named_shapes(template)
        return naming.from_named({n: theirs[self.rename(n)] for n in names}, template)

    def sides(
        self, inputs: Arrays, dtype: str, gradients: bool, rounded: str | None = None
    ) -> tuple[FlaxSide, TorchSide]:
        """Both sides in a dtype; `rounded` rounds the numbers to a narrower one beforehand."""
        at = rounded or dtype
        params = jax.tree.map(
            lambda x: jnp.asarray(x, at).astype(dtype), dict(self.variables["params"])
        )
        state = {k: _typed(v, dtype) for k, v in self.variables.items() if k != "params"}
        module = copy.deepcopy(self.torch).to(getattr(torch, at)).to(getattr(torch, dtype))
        arrays = _cast(inputs, at, dtype)
        variables = {"params": params, **state}
        return (
            FlaxSide(self.flax, variables, arrays, self.flax_options, self.rename, gradients),
            TorchSide(module, arrays, self.torch_options, gradients),
        )

    def narrow_values(self, inputs: Arrays, dtype: str, gradients: bool) -> Iterator[Value]:
        """Both sides in a lower precision, each held against float64 on the rounded numbers."""
        flax, torch_side = self.sides(inputs, dtype, gradients)
        truth = self.sides(inputs, "float64", gradients, rounded=dtype)[1].run()
        yield from values(flax.run(), torch_side.run(), dtype, truth)

    def sizes(self) -> dict[str, float]:
        """Widths that the parameters show: a wrong scale is most often made of one of them."""
        widths = {n for p in self.torch.parameters() for n in p.shape if n > 1}
        return {f"{n}": float(n) for n in sorted(widths)}


def _typed(tree: Any, dtype: str) -> Any:
    """Running statistics and the like in the dtype of the run."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )


def _wrapped(variables: Mapping[str, Any]) -> dict[str, Any]:
    return dict(variables) if "params" in variables else {"params": dict(variables)}


def as_arrays(inputs: Inputs) -> Arrays:
    if isinstance(inputs, Mapping):
        return {name: np.asarray(x) for name, x in inputs.items()}
    return [np.asarray(x) for x in inputs]


def _call(inputs: Arrays) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    return ([], inputs) if isinstance(inputs, dict) else (inputs, {})


def _cast(inputs: Arrays, *dtypes: Any) -> Arrays:
    """Float inputs through these dtypes one after the other."""

    def cast(array: np.ndarray) -> np.ndarray:
        for dtype in dtypes if is_float(array) else ():
            array = np.asarray(jnp.asarray(array, dtype))
        return array

    if isinstance(inputs, dict):
        return {name: cast(x) for name, x in inputs.items()}
    return [cast(x) for x in inputs]
