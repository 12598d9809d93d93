"""A user's training in torch: (module, optimizer, loss or step[, scheduler[, average]])."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.models.failures import TORCH_RUNS, blaming
from parity.observe.settings import NotComparableError
from parity.training.optimizers import hints_of
from parity.training.record import Loop, Named, Step, Update

_EXPECTED = (
    "torch: (module, optimizer, function) or (module, optimizer, function, scheduler) is needed; "
    "function(module, batch) or function(batch) returns the loss, or does the whole step"
)


def torch_loop(given: Any) -> Loop:
    """What a user handed over as a `Loop`.

    Args:
        given: (module, optimizer, function, ...). The function takes (module, batch) or (batch)
            and returns the loss; where it calls optimizer.step() itself, it is the whole step,
            with clipping and whatever else. Further parts: a scheduler, stepped after every update,
            and a module that keeps an average of the parameters (updated by
            `update_parameters(module)` or `update(module)` where the function does not do it).
            (optimizer class or function of parameters, parameters by name): the optimizer alone.
    Raises:
        NotComparableError: it is none of these.
    """
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return _bare(*given)
    if not (isinstance(given, tuple) and len(given) >= 3 and isinstance(given[0], nn.Module)):
        raise NotComparableError(_EXPECTED)
    module, optimizer, function, *rest = given
    if not (hasattr(optimizer, "param_groups") and callable(function)):
        raise NotComparableError(_EXPECTED)

    parameters = _arrays(dict(module.named_parameters()))
    statistics = _arrays({n: b for n, b in module.named_buffers() if b.is_floating_point()})

    def run(weights: Named, buffers: Named, batches: Sequence[Any]) -> list[Step]:
        with _restored(module, optimizer, rest):
            _load(module, weights, buffers)
            averaged = [part for part in rest if isinstance(part, nn.Module)]
            for average in averaged:
                _load(_inner(average), weights, buffers)
            scheduler = next((part for part in rest if _is_scheduler(part)), None)
            return [_step(module, optimizer, function, scheduler, averaged, b) for b in batches]

    def update(weights: Named, gradients: Sequence[Named]) -> list[Update]:
        with _restored(module, optimizer, rest):
            _load(module, weights, {})
            scheduler = next((part for part in rest if _is_scheduler(part)), None)
            return _updates(dict(module.named_parameters()), optimizer, scheduler, gradients)

    hints = hints_of(optimizer.param_groups)
    return Loop("torch", parameters, statistics, run, update, hints)


def _bare(make: Callable[..., Any], parameters: Mapping[str, Any]) -> Loop:
    arrays = {n: np.asarray(p.detach() if isinstance(p, Tensor) else p, np.float64) for n, p in
              parameters.items()}  # fmt: skip

    def built(weights: Named) -> tuple[dict[str, Tensor], Any]:
        held = {n: torch.tensor(weights[n], requires_grad=True) for n in weights}
        with blaming(TORCH_RUNS):
            return held, make(list(held.values()))

    def update(weights: Named, gradients: Sequence[Named]) -> list[Update]:
        held, made = built(weights)
        optimizer, *rest = made if isinstance(made, tuple) else (made,)
        return _updates(held, optimizer, next(iter(rest), None), gradients)

    def run(weights: Named, buffers: Named, batches: Sequence[Any]) -> list[Step]:
        return []

    made = built(arrays)[1]
    optimizer = made[0] if isinstance(made, tuple) else made
    return Loop("torch", arrays, {}, run, update, hints_of(optimizer.param_groups))


def _updates(
    held: Mapping[str, Tensor], optimizer: Any, scheduler: Any, gradients: Sequence[Named]
) -> list[Update]:
    found = []
    for grads in gradients:
        before = _arrays(held)
        rates = tuple(float(group["lr"]) for group in optimizer.param_groups)
        for name, tensor in held.items():
            tensor.grad = torch.tensor(grads[name], dtype=tensor.dtype) if name in grads else None
        with blaming(TORCH_RUNS):
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
        found.append(Update(before, _arrays(held), rates))
    return found


def _step(
    module: nn.Module,
    optimizer: Any,
    function: Callable[..., Any],
    scheduler: Any,
    averaged: list[nn.Module],
    batch: Any,
) -> Step:
    named = dict(module.named_parameters())
    before = _arrays(named)
    sums: dict[str, np.ndarray] = {}
    clipped: dict[str, np.ndarray] = {}
    rates: list[float] = []
    moved = []

    def note_gradient(name: str) -> Callable[[Tensor], None]:
        def note(grad: Tensor) -> None:
            sums[name] = sums.get(name, 0.0) + grad.detach().double().numpy(force=True)

        return note

    def note_optimizer(*_: Any) -> None:
        moved.append(True)
        clipped.update(_arrays({n: p.grad for n, p in named.items() if p.grad is not None}))
        rates[:] = [float(group["lr"]) for group in optimizer.param_groups]

    hooks = [p.register_hook(note_gradient(n)) for n, p in named.items() if p.requires_grad]
    hooks.append(optimizer.register_step_pre_hook(note_optimizer))
    averages_before = [_arrays(dict(a.named_parameters())) for a in averaged]
    try:
        with blaming(TORCH_RUNS):
            loss = _called(function, module, _tensors(batch))
            loss = loss[0] if isinstance(loss, tuple) else loss
            loss = loss.get("loss") if isinstance(loss, dict) else loss
            if not moved:
                if not isinstance(loss, Tensor):
                    raise NotComparableError(
                        "torch: the function neither returns a loss nor calls optimizer.step()"
                    )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if scheduler is not None:
                scheduler.step()
    finally:
        for hook in hooks:
            hook.remove()
    for average, old in zip(averaged, averages_before, strict=True):
        if all(
            np.array_equal(a, old[n]) for n, a in _arrays(dict(average.named_parameters())).items()
        ):
            update = getattr(average, "update_parameters", None) or getattr(average, "update", None)
            if update is not None:
                update(module)
    return Step(
        None if loss is None else float(torch.as_tensor(loss).detach()),
        sums,
        clipped,
        before,
        _arrays(named),
        _arrays({n: b for n, b in module.named_buffers() if b.is_floating_point()}),
        {
            f"average {i}": _arrays(dict(_inner(a).named_parameters()))
            for i, a in enumerate(averaged)
        },
        tuple(rates),
    )


def _called(function: Callable[..., Any], module: nn.Module, batch: Any) -> Any:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    wanted = [p for p in parameters if p.default is p.empty and p.kind in kinds]
    return function(batch) if len(wanted) == 1 else function(module, batch)


def _is_scheduler(part: Any) -> bool:
    return hasattr(part, "step") and not isinstance(part, nn.Module)


def _inner(average: nn.Module) -> nn.Module:
    """The copy of the module that an averaging wrapper holds."""
    inner = getattr(average, "module", average)
    return inner if isinstance(inner, nn.Module) else average


@contextmanager
def _restored(module: nn.Module, optimizer: Any, rest: Sequence[Any]) -> Iterator[None]:
    """Everything in float64 for a while, and as it was afterwards.

    The user's functions hold these very objects, so that copies would not be run.
    """
    modules = [module, *(part for part in rest if isinstance(part, nn.Module))]
    tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    kept = [(t, t.data, t.data.clone(), t.grad) for t in tensors]
    others = [p for p in rest if not isinstance(p, nn.Module)]
    states = [(part, copy.deepcopy(_plain(part))) for part in others if hasattr(part, "__dict__")]
    saved = copy.deepcopy(optimizer.state_dict())
    groups = [dict(group) for group in optimizer.param_groups]
    modes = [(m, m.training) for root in modules for m in root.modules()]
    try:
        for tensor in tensors:
            tensor.grad = None
            if tensor.is_floating_point():
                tensor.data = tensor.data.double()
        for state in optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, Tensor) and value.is_floating_point():
                    state[key] = value.double()
        yield
    finally:
        for tensor, data, numbers, grad in kept:
            data.copy_(numbers)
            tensor.data = data
            tensor.grad = grad
        optimizer.load_state_dict(saved)
        if not saved["state"]:
            optimizer.state.clear()
        for group, old in zip(optimizer.param_groups, groups, strict=True):
            group.update({k: v for k, v in old.items() if k != "params"})
        for part, state in states:
            part.__dict__.update(state)
        for part, training in modes:
            part.training = training


def _plain(part: Any) -> dict[str, Any]:
    """A scheduler's own counters, without the optimizer and functions that it holds."""
    kinds = (int, float, str, bool, list, tuple, dict)
    return {
        n: v
        for n, v in vars(part).items()
        if isinstance(v, kinds) and not n.startswith("_schedulers") and n != "lr_lambdas"
    }


@torch.no_grad()
def _load(module: nn.Module, weights: Named, buffers: Named) -> None:
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, array in {**weights, **buffers}.items():
        if name in tensors:
            tensors[name].copy_(torch.tensor(np.asarray(array)))


def _arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {n: t.detach().double().numpy(force=True).copy() for n, t in tensors.items()}


def _tensors(batch: Any) -> Any:
    """A batch of NumPy arrays as tensors, floating ones in float64."""
    if isinstance(batch, Mapping):
        return {key: _tensors(value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)(_tensors(value) for value in batch)
    if isinstance(batch, np.ndarray):
        batch = torch.tensor(batch)
    if isinstance(batch, Tensor) and batch.is_floating_point():
        return batch.double()
    return batch
