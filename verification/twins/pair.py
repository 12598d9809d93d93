"""Run a Flax function and its torch twin on the same numbers: outputs and all gradients."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.judge.errors import Difference, differences
from parity.observe.arrays import as_array, as_tensor
from parity.observe.flax_side import compile_fast
from parity.observe.points import probe_weights
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


def is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and jnp.issubdtype(array.dtype, jnp.floating)


def cotangents(outputs: list, dtype: str) -> list[np.ndarray]:
    """What the outputs are weighted with before gradients are taken: numbers that `dtype` holds."""
    weights = probe_weights([tuple(o.shape) for o in outputs])
    return [weight.astype(dtype).astype(np.float64) for weight in weights]


def run_flax(
    call: Callable,
    params: dict,
    inputs: dict,
    compiled: Callable[[Callable], Callable] = compile_fast,
    dtype: str = "float64",
) -> Arrays:
    """Outputs of `call(params, **inputs)`, and gradients of parameters and float inputs."""
    floats = {k: jnp.asarray(v) for k, v in inputs.items() if is_float(v)}
    rest = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}

    def outputs_of(params, floats):
        return jax.tree.leaves(call(params, **rest | floats))

    def both(params, floats):
        outputs, pull = jax.vjp(outputs_of, params, floats)
        weights = [jnp.asarray(c, o.dtype) for c, o in _zip(outputs, dtype)]
        return outputs, *pull(weights)

    outputs, param_grads, input_grads = compiled(both)(params, floats)
    named = naming.to_named(param_grads) if params else {}
    return _named(outputs, named, input_grads, np.asarray)


def run_torch(
    call: Callable, parameters: Mapping[str, torch.Tensor], inputs: dict, dtype: str = "float64"
) -> Arrays:
    """The same of `call(**inputs)`, a torch module or function."""
    tensors = {
        k: as_tensor(v).to(torch_device()).requires_grad_(is_float(v))
        if isinstance(v, np.ndarray)
        else v
        for k, v in inputs.items()
    }
    floats = {k: v for k, v in tensors.items() if is_float(inputs[k])}
    outputs = jax.tree.leaves(call(**tensors))
    weights = [torch.tensor(c, dtype=o.dtype, device=o.device) for c, o in _zip(outputs, dtype)]
    targets = [*parameters.values(), *floats.values()]
    grads = torch.autograd.grad(outputs, targets, weights, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for t, g in zip(targets, grads, strict=True)]
    split = len(parameters)
    return _named(
        outputs,
        dict(zip(parameters, grads[:split], strict=True)),
        dict(zip(floats, grads[split:], strict=True)),
        as_array,
    )


def _zip(outputs: list, dtype: str) -> list[tuple]:
    return list(zip(cotangents(outputs, dtype), outputs, strict=True))


def _named(outputs, param_grads, input_grads, convert: Callable) -> Arrays:
    named = {f"output.{i}": out for i, out in enumerate(outputs)}
    named |= {f"parameter.{name}": grad for name, grad in param_grads.items()}
    named |= {f"input.{name}": grad for name, grad in input_grads.items()}
    return {name: convert(value) for name, value in named.items()}


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
        self.inputs = {k: v.astype(dtype) if is_float(v) else v for k, v in inputs.items()}
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
        return self._torch_call(self.torch)(**inputs)

    def _torch_call(self, module: torch.nn.Module) -> Callable:
        return getattr(module, "forward" if self.method == "__call__" else self.method)

    def run_flax(self, compiled: Callable[[Callable], Callable] = compile_fast) -> Arrays:
        return run_flax(self.call_flax, self.params, self.inputs, compiled, self.dtype)

    def run_torch(self) -> Arrays:
        parameters = dict(self.torch.named_parameters())
        return run_torch(self.call_torch, parameters, self.inputs, self.dtype)

    def run_truth(self) -> Arrays:
        """What torch gives in float64 for the very numbers that the pair holds in its dtype."""
        exact = copy.deepcopy(self.torch).double()
        inputs = {k: v.astype(np.float64) if is_float(v) else v for k, v in self.inputs.items()}
        parameters = dict(exact.named_parameters())
        return run_torch(self._torch_call(exact), parameters, inputs, self.dtype)

    def differences(self) -> list[Difference]:
        return differences(self.run_flax(), self.run_torch())


def function_differences(flax_call: Callable, torch_call: Callable, inputs: dict):
    """The differences of two functions without parameters."""
    ours = run_flax(lambda _, **kwargs: flax_call(**kwargs), {}, inputs)
    return differences(ours, run_torch(torch_call, {}, inputs))
