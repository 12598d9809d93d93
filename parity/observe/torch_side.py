"""A torch model under observation."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.observe.bridge import tensor_of, torch_arrays
from parity.observe.points import (
    Given,
    Passed,
    Point,
    Run,
    Walk,
    dtype_name,
    first_line,
    probe_weights,
    through,
    to_numpy,
)
from parity.observe.points import touch_call as touch_arguments
from transformer_spec import taps

Inputs = Mapping[str, np.ndarray] | list[np.ndarray]


class TorchSide:
    """A torch module and its inputs.

    Args:
        module: any module, with its parameters in place, in evaluation mode.
        inputs: arrays by position or by name.
        options: further keyword arguments of its call.
        gradients: take them, or run forward alone.
    """

    framework = "torch"

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        options: Mapping[str, Any] | None = None,
        gradients: bool = True,
    ):
        self.module, self.gradients = module, gradients
        parameter = next(module.parameters(), None)
        device = torch.device("cpu") if parameter is None else parameter.device
        named = isinstance(inputs, Mapping)
        self.args = [] if named else [tensor_of(x).to(device) for x in inputs]
        arrays = {k: tensor_of(x).to(device) for k, x in inputs.items()} if named else {}
        self.kwargs = arrays | dict(options or {})

    def parameters(self) -> dict[str, np.ndarray]:
        return torch_arrays(self.module)

    def run(self) -> Run:
        """The model as it is, with the gradient of a fixed weighting of its outputs."""

        def leaf(point: Point, arrays: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            own = [_own(a) for a in arrays]
            return own, own

        def probe(seen: dict[Point, list[Tensor]]) -> Tensor | None:
            point = next(reversed(seen))
            weights = probe_weights([tuple(a.shape) for a in seen[point]])
            return _weighted(seen[point], weights)

        return self._execute(leaf, probe)

    def run_with(self, given: Given) -> Run:
        """What each piece of code computes from the given values, and its gradients by them."""

        def replaced(point: Point, arrays: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            new = given.arrays.get(point.key)
            if new is None or [a.shape for a in new] != [tuple(a.shape) for a in arrays]:
                return arrays, arrays
            return arrays, [_leaf(n, a) for n, a in zip(new, arrays, strict=True)]

        def probe(seen: dict[Point, list[Tensor]]) -> Tensor | None:
            parts = [_weighted(a, given.weights.get(point.key)) for point, a in seen.items()]
            parts = [part for part in parts if part is not None]
            return torch.stack(parts).sum() if parts else None

        return self._execute(replaced, probe)

    def _execute(self, exchange: Callable, probe: Callable) -> Run:
        seen: dict[Point, list[Tensor]] = {}
        onward: dict[Point, list[Tensor]] = {}

        def touch(point: Point, arrays: list[Tensor]) -> list[Tensor]:
            seen[point], onward[point] = exchange(point, arrays)
            return onward[point]

        walk = Walk(touch)
        try:
            recorded = torch.set_grad_enabled(self.gradients)
            with self._hooked(walk), taps.recording(walk.tap), recorded:
                self.module(*self.args, **self.kwargs)
            grads, param_grads = (
                self._gradients(probe(seen), onward) if self.gradients else ({}, {})
            )
        except Exception as error:
            passed = {p.key: _passed(p, arrays) for p, arrays in seen.items()}
            return Run(passed, {}, (first_line(error), walk.stack[-1] if walk.stack else ""))
        passed = {
            point.key: _passed(point, arrays, grads.get(point)) for point, arrays in seen.items()
        }
        return Run(passed, param_grads)

    def _gradients(
        self, total: Tensor | None, values: dict[Point, list[Tensor]]
    ) -> tuple[dict[Point, list[np.ndarray | None]], dict[str, np.ndarray]]:
        parameters = dict(self.module.named_parameters())
        tensors = [a for arrays in values.values() for a in arrays if a.requires_grad]
        targets = [*parameters.values(), *tensors]
        if total is None or not total.requires_grad:
            found = [None] * len(targets)
        else:
            found = torch.autograd.grad(total, targets, allow_unused=True)
        arrays = [
            to_numpy(torch.zeros_like(t) if g is None else g)
            for t, g in zip(targets, found, strict=True)
        ]
        named = dict(zip(parameters, arrays, strict=False))
        rest = iter(arrays[len(parameters) :])
        return {
            point: [next(rest) if a.requires_grad else None for a in group]
            for point, group in values.items()
        }, named

    @contextmanager
    def _hooked(self, walk: Walk) -> Iterator[None]:
        """Every call of every module goes through the walk."""

        def hooks(name: str) -> tuple[Callable, Callable]:
            def before(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
                return touch_arguments(
                    lambda arguments, arrays: walk.enter(name, arguments, arrays),
                    module.forward,
                    args,
                    kwargs,
                )

            def after(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
                return through(walk.leave, output)

            return before, after

        handles = []
        for name, module in self.module.named_modules():
            before, after = hooks(name)
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _passed(point: Point, arrays: list[Tensor], grads: list | None = None) -> Passed:
    values, dtypes = [to_numpy(a) for a in arrays], [dtype_name(a) for a in arrays]
    return Passed(point, values, dtypes, grads or [])


def _own(tensor: Tensor) -> Tensor:
    """The same values as a tensor of their own, by which a gradient can be taken."""
    if not tensor.is_floating_point() or not torch.is_grad_enabled():
        return tensor
    return tensor.clone() if tensor.requires_grad else tensor.detach().clone().requires_grad_()


def _leaf(array: np.ndarray, like: Tensor) -> Tensor:
    tensor = torch.tensor(array).to(like.device, like.dtype)
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _weighted(tensors: list[Tensor], weights: Any) -> Tensor | None:
    """The sum of all values, each weighted; None where nothing weights them."""
    pairs = [(t, w) for t, w in zip(tensors, weights or (), strict=False) if w is not None]
    parts = [(_leaf(w, t).detach() * t).sum() for t, w in pairs if t.is_floating_point()]
    return torch.stack(parts).sum() if parts else None
