"""Run a Flax module and its torch twin on the same numbers, by the tool: outputs and gradients."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.judge.errors import Difference, differences
from parity.observe.arrays import as_tensor
from parity.observe.flax_side import FlaxFunction, FlaxSide, compile_fast
from parity.observe.points import ENDS, Recording, probe_weights
from parity.observe.torch_side import TorchFunction, TorchSide
from parity.observe.weights import weights_to_torch
from transformer_spec import naming
from verification.twins.weights import hostile_parameters

Arrays = dict[str, np.ndarray]


def torch_device() -> torch.device:
    """Beside jax on a GPU: the GPU; else the CPU."""
    return torch.device("cuda" if jax.default_backend() == "gpu" else "cpu")


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The same arrays where the torch twin runs."""
    return {name: as_tensor(array).to(torch_device()) for name, array in arrays.items()}


def _cast(inputs: dict, dtype: str) -> dict:
    """The floating-point arrays in a dtype, the rest as it is."""
    return {
        name: value.astype(dtype)
        if isinstance(value, np.ndarray) and jnp.issubdtype(value.dtype, jnp.floating)
        else value
        for name, value in inputs.items()
    }


def rounded_probe(dtype: str, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Weights of the outputs that `dtype` holds: a run in it and its truth use the same ones."""
    return [weight.astype(dtype).astype(np.float64) for weight in probe_weights(list(shapes))]


def arrays_of(recording: Recording, dtype: str) -> Arrays:
    """A run's outputs and gradients by name, outputs in the dtype that the model gave them."""
    recording.require_finished()
    ends = recording.observed["", "output"]
    outputs = zip(ends.arrays, ends.dtypes, strict=True)
    found = {f"output.{i}": array.astype(own) for i, (array, own) in enumerate(outputs)}
    for kind, gradients in (
        ("parameter", recording.parameter_gradients),
        ("input", recording.input_gradients),
    ):
        found |= {f"{kind}.{name}": array.astype(dtype) for name, array in gradients.items()}
    return found


class Pair:
    """A Linen module and its torch twin with the same hostile parameters."""

    def __init__(
        self,
        flax_module: nn.Module,
        torch_module: torch.nn.Module,
        inputs: dict,
        method: str = "__call__",
        dtype: str = "float64",
        seed: int = 0,
        adjust: Callable[[Arrays], Arrays] = lambda named: named,
    ):
        self.flax, self.torch, self.method = flax_module, torch_module, method
        self.dtype = dtype
        self.inputs = _cast(inputs, dtype)
        arrays: dict[str, Any] = {
            k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()
        }
        variables = jax.eval_shape(
            lambda: flax_module.init(jax.random.key(0), **arrays, method=method)
        )
        template = variables.get("params", {})
        scale = getattr(getattr(flax_module, "config", None), "embedding_scale", 1.0)
        named = hostile_parameters(naming.named_shapes(template), seed, scale)
        named = {name: array.astype(dtype) for name, array in adjust(named).items()}
        self.params = jax.tree.map(jnp.asarray, naming.from_named(named, template))
        self.torch.to(torch_device(), getattr(torch, dtype)).eval()
        # Through float64, which holds every number of the others: torch reads no bfloat16.
        weights_to_torch(jax.tree.map(lambda p: np.asarray(p, np.float64), self.params), self.torch)

    def call_flax(self, params, **inputs):
        return self.flax.apply({"params": params}, **inputs, method=self.method)

    def call_torch(self, **inputs):
        method = "forward" if self.method == "__call__" else self.method
        return getattr(self.torch, method)(**inputs)

    def run_flax(self, compiler: Callable[[Callable], Callable] = compile_fast) -> Arrays:
        side = FlaxSide(
            self.flax,
            {"params": self.params},
            self.inputs,
            method=self.method,
            watched=ENDS,
            probe=partial(rounded_probe, self.dtype),
            compiler=compiler,
        )
        return arrays_of(side.record(), self.dtype)

    def run_torch(self) -> Arrays:
        return self._run_torch(self.torch, self.inputs, self.dtype)

    def run_truth(self) -> Arrays:
        """What torch gives in float64 for the very numbers that the pair holds in its dtype."""
        exact = copy.deepcopy(self.torch).double()
        return self._run_torch(exact, _cast(self.inputs, "float64"), "float64")

    def _run_torch(self, module: torch.nn.Module, inputs: dict, dtype: str) -> Arrays:
        method = "forward" if self.method == "__call__" else self.method
        probe = partial(rounded_probe, self.dtype)
        side = TorchSide(module, inputs, method=method, watched=ENDS, probe=probe)
        return arrays_of(side.record(), dtype)

    def differences(self) -> list[Difference]:
        return differences(self.run_flax(), self.run_torch())


def function_differences(
    flax_call: Callable[..., Any], torch_call: Callable[..., Any], inputs: dict
) -> list[Difference]:
    """The differences of two functions without parameters."""

    def placed(**arguments: Any) -> Any:
        device = torch_device()
        return torch_call(
            **{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        )

    flax = FlaxSide(FlaxFunction(flax_call), {}, inputs, watched=ENDS)
    reference = TorchSide(TorchFunction(placed), inputs, watched=ENDS)
    return differences(
        arrays_of(flax.record(), "float64"), arrays_of(reference.record(), "float64")
    )
