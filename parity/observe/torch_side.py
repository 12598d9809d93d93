"""A torch model under observation."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.observe.arrays import as_tensor, dtype_name, is_array, to_numpy
from parity.observe.points import (
    OUTPUTS,
    Failure,
    Key,
    Observed,
    Point,
    Probe,
    Recording,
    Substitutes,
    Walk,
    map_arguments,
    map_arrays,
    probe_weights,
)
from parity.observe.weights import torch_parameters
from transformer_spec import taps

Inputs = Mapping[str, np.ndarray] | list[np.ndarray]
Values = dict[Point, list[Tensor]]
# From the values computed at a point: those to record, and those that later code reads.
Exchange = Callable[[Point, list[Tensor]], tuple[list[Tensor], list[Tensor]]]


class TorchFunction(nn.Module):
    """A function without parameters as a torch module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class TorchSide:
    """A torch module and its inputs.

    Args:
        module: any module, with its parameters in place (`TorchFunction` makes one of a function).
        inputs: arrays by position or by name.
        options: further keyword arguments of the call.
        gradients: take them, or run forward alone.
        method: which of the module's methods is called.
        watched: the points to record; None: all.
        probe: makes the weights of the outputs in the sum whose gradient is taken.
    """

    framework = "torch"

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        options: Mapping[str, Any] | None = None,
        gradients: bool = True,
        *,
        method: str = "forward",
        watched: Collection[Key] | None = None,
        probe: Probe = probe_weights,
    ):
        self.module, self.gradients, self.method = module, gradients, method
        self.watched, self.probe = watched, probe
        parameter = next(module.parameters(), None)
        device = torch.device("cpu") if parameter is None else parameter.device

        def placed(value: Any) -> Any:
            return as_tensor(value).to(device) if is_array(value) else value

        by_name = isinstance(inputs, Mapping)
        self.args = [] if by_name else [placed(x) for x in inputs]
        arrays = {k: placed(x) for k, x in inputs.items()} if by_name else {}
        self.kwargs: dict[str, Any] = arrays | dict(options or {})

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters by name."""
        return torch_parameters(self.module)

    def record(self) -> Recording:
        """The model as it is, with the gradient of a fixed weighting of its outputs."""

        def leaves(point: Point, arrays: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            copies = [_leaf_copy(a) for a in arrays]
            return copies, copies

        def weighted_outputs(recorded: Values) -> Tensor | None:
            outputs = recorded[Point("", "output", "")]
            return _weighted(outputs, self.probe([tuple(a.shape) for a in outputs]))

        return self._execute(leaves, weighted_outputs)

    def record_with(self, substitutes: Substitutes) -> Recording:
        """What each piece of code computes from the substitutes, and its gradients by them."""

        def replaced(point: Point, arrays: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            new = substitutes.arrays.get(point.key)
            if new is None or [a.shape for a in new] != [tuple(a.shape) for a in arrays]:
                return arrays, arrays
            return arrays, [_leaf(n, a) for n, a in zip(new, arrays, strict=True)]

        def weighted_values(recorded: Values) -> Tensor | None:
            weights = substitutes.weights
            parts = [_weighted(a, weights.get(point.key)) for point, a in recorded.items()]
            parts = [part for part in parts if part is not None]
            return torch.stack(parts).sum() if parts else None

        return self._execute(replaced, weighted_values)

    def _execute(
        self, exchange: Exchange, objective: Callable[[Values], Tensor | None]
    ) -> Recording:
        """Run the module once, and differentiate what `objective` makes of the recorded values."""
        recorded: Values = {}
        onward: Values = {}

        def visit(point: Point, arrays: list[Tensor]) -> list[Tensor]:
            watched = self.watched is None or point.key in self.watched or point.key == OUTPUTS
            if not watched:
                return arrays
            recorded[point], onward[point] = exchange(point, arrays)
            return onward[point]

        walk = Walk(visit)
        gradients, parameter_gradients, failure = {}, {}, None
        try:
            with torch.set_grad_enabled(self.gradients), taps.recording(walk.tap):
                self._call(walk)
            if self.gradients:
                gradients, parameter_gradients = self._gradients(objective(recorded), onward)
        except Exception as error:
            failure = Failure(error, walk.stack[-1] if walk.stack else "")
        observed = {
            point.key: _observed(point, arrays, gradients.get(point))
            for point, arrays in recorded.items()
        }
        return Recording(observed, parameter_gradients, failure)

    def _gradients(
        self, total: Tensor | None, values: Values
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

    def _call(self, walk: Walk) -> None:
        """One call of the module; the arrays of every call inside it go through the walk."""
        with self._hooked(walk):
            if self.method == "forward":
                self.module(*self.args, **self.kwargs)
                return
            method = getattr(self.module, self.method)
            args, kwargs = _entering(walk, "", method, tuple(self.args), self.kwargs)
            map_arrays(walk.leave, method(*args, **kwargs))

    @contextmanager
    def _hooked(self, walk: Walk) -> Iterator[None]:
        """Hooks on all modules, for as long as the context lasts."""

        def hooks(name: str) -> tuple[Callable, Callable]:
            def before(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
                return _entering(walk, name, module.forward, args, kwargs)

            def after(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
                return map_arrays(walk.leave, output)

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


def _entering(
    walk: Walk, name: str, function: Callable, args: tuple, kwargs: dict[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    def enter(arguments: tuple[str, ...], arrays: list[Tensor]) -> list[Tensor]:
        return walk.enter(name, arguments, arrays)

    return map_arguments(enter, function, args, kwargs)


def _observed(
    point: Point, arrays: list[Tensor], gradients: list[np.ndarray | None] | None
) -> Observed:
    values, dtypes = [to_numpy(a) for a in arrays], [dtype_name(a) for a in arrays]
    return Observed(point, values, dtypes, gradients or [])


def _leaf_copy(tensor: Tensor) -> Tensor:
    """The same values as another tensor, by which a gradient can be taken."""
    if not tensor.is_floating_point() or not torch.is_grad_enabled():
        return tensor
    return tensor.clone() if tensor.requires_grad else tensor.detach().clone().requires_grad_()


def _leaf(array: np.ndarray, like: Tensor) -> Tensor:
    tensor = torch.tensor(array).to(like.device, like.dtype)
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _weighted(
    tensors: list[Tensor], weights: list[np.ndarray] | list[np.ndarray | None] | None
) -> Tensor | None:
    """The sum of all values, each weighted; None where nothing weights them."""
    pairs = [(t, w) for t, w in zip(tensors, weights or (), strict=False) if w is not None]
    parts = [(_leaf(w, t).detach() * t).sum() for t, w in pairs if t.is_floating_point()]
    return torch.stack(parts).sum() if parts else None
