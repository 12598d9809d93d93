"""Run a Flax function and its torch twin on the same numbers: outputs and all gradients."""

from collections.abc import Callable
from functools import cache
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity import bridge
from parity.compare import Difference, differences
from parity_tests.hostile import hostile_parameters
from transformer_spec import naming

Arrays = dict[str, np.ndarray]

# Hundreds of small programs are compiled and each is run once: on a CPU the compiler is told not
# to optimize what it generates. `test_jit_is_eager` compiles as users do.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@cache
def quick_options() -> dict[str, int | bool]:
    """Those of QUICK that this version of XLA knows."""
    known = {}
    for name, value in QUICK.items() if jax.default_backend() == "cpu" else ():
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


def torch_device() -> torch.device:
    """Beside jax on a GPU: the GPU; else the CPU."""
    return torch.device("cuda" if jax.default_backend() == "gpu" else "cpu")


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The same arrays where the torch twin runs."""
    return {name: torch.tensor(array, device=torch_device()) for name, array in arrays.items()}


def is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and np.issubdtype(array.dtype, np.floating)


def cotangents(outputs: list) -> list[np.ndarray]:
    """What the outputs are weighted with before gradients are taken."""
    rng = np.random.default_rng(17)
    return [rng.normal(size=tuple(out.shape)) for out in outputs]


def quick(function: Callable) -> Callable:
    """`function`, compiled in the shortest time."""
    return jax.jit(function, compiler_options=quick_options())


def run_flax(
    call: Callable, params: dict, inputs: dict, compiled: Callable[[Callable], Callable] = quick
) -> Arrays:
    """Outputs of `call(params, **inputs)`, and gradients of parameters and float inputs."""
    floats = {k: jnp.asarray(v) for k, v in inputs.items() if is_float(v)}
    rest = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}

    def outputs_of(params, floats):
        return jax.tree.leaves(call(params, **rest | floats))

    def both(params, floats):
        outputs, pull = jax.vjp(outputs_of, params, floats)
        weights = [jnp.asarray(c, o.dtype) for c, o in _zip(outputs)]
        return outputs, *pull(weights)

    outputs, param_grads, input_grads = compiled(both)(params, floats)
    named = naming.to_named(param_grads) if params else {}
    return _named(outputs, named, input_grads, np.asarray)


def run_torch(call: Callable, parameters: dict[str, torch.Tensor], inputs: dict) -> Arrays:
    """The same of `call(**inputs)`, a torch module or function."""
    tensors = {
        k: torch.tensor(v, device=torch_device(), requires_grad=is_float(v))
        if isinstance(v, np.ndarray)
        else v
        for k, v in inputs.items()
    }
    floats = {k: v for k, v in tensors.items() if is_float(inputs[k])}
    outputs = jax.tree.leaves(call(**tensors))
    weights = [torch.tensor(c, dtype=o.dtype, device=o.device) for c, o in _zip(outputs)]
    targets = [*parameters.values(), *floats.values()]
    grads = torch.autograd.grad(outputs, targets, weights, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for t, g in zip(targets, grads, strict=True)]
    split = len(parameters)
    return _named(
        outputs,
        dict(zip(parameters, grads[:split], strict=True)),
        dict(zip(floats, grads[split:], strict=True)),
        lambda tensor: tensor.numpy(force=True),
    )


def _zip(outputs: list) -> list[tuple]:
    return list(zip(cotangents(outputs), outputs, strict=True))


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
    ):
        self.flax, self.torch, self.method = flax_module, torch_module, method
        self.inputs = {k: v.astype(dtype) if is_float(v) else v for k, v in inputs.items()}
        arrays = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
        variables = jax.eval_shape(
            lambda: flax_module.init(jax.random.key(0), **arrays, method=method)
        )
        template = variables.get("params", {})
        scale = getattr(getattr(flax_module, "config", None), "embedding_scale", 1.0)
        named = hostile_parameters(naming.named_shapes(template), seed, scale)
        named = {name: array.astype(dtype) for name, array in named.items()}
        self.params = jax.tree.map(jnp.asarray, naming.from_named(named, template))
        self.torch.to(torch_device(), getattr(torch, dtype)).eval()
        bridge.to_torch(self.params, self.torch)

    def call_flax(self, params, **inputs):
        return self.flax.apply({"params": params}, **inputs, method=self.method)

    def call_torch(self, **inputs):
        name = "forward" if self.method == "__call__" else self.method
        return getattr(self.torch, name)(**inputs)

    def run_flax(self, compiled: Callable[[Callable], Callable] = quick) -> Arrays:
        return run_flax(self.call_flax, self.params, self.inputs, compiled)

    def run_torch(self) -> Arrays:
        return run_torch(self.call_torch, dict(self.torch.named_parameters()), self.inputs)

    def differences(self) -> list[Difference]:
        return differences(self.run_flax(), self.run_torch())


def function_differences(flax_call: Callable, torch_call: Callable, inputs: dict):
    """The differences of two functions without parameters."""
    ours = run_flax(lambda _, **kwargs: flax_call(**kwargs), {}, inputs)
    return differences(ours, run_torch(torch_call, {}, inputs))
