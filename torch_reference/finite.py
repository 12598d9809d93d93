"""Find the first value that is not finite in one update of a state."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torch_reference.gradients import gradients, in_dtype
from torch_reference.state import TrainState
from transformer_spec import taps
from transformer_spec.batch import Batch
from transformer_spec.parameters import parameter_shapes
from transformer_spec.train_config import TrainConfig
from transformer_spec.watching import Watch


def first_bad(
    state: TrainState, batch: Batch, *, config: TrainConfig
) -> tuple[str | None, str | None]:
    """The first value and the first gradient of the state's next update that are not finite.

    Values are what taps name and modules return, in order of execution, and the loss after them;
    gradients are in the order of parameters. Dropout is that of the update. The state is unchanged.
    """
    watch, model = Watch(all_finite), state.model
    forward = in_dtype(model, config.dtype)
    with _watched(watch, model), taps.recording(watch.tap):
        _, metrics = gradients(
            model, batch, state.dropout_key, state.step, forward=forward, config=config
        )
    if watch.first is None and not all_finite(metrics["loss"]):
        watch.first = "the loss"
    named, order = dict(model.named_parameters()), parameter_shapes(model.config)
    bad = next((name for name in order if not all_finite(named[name].grad)), None)
    model.zero_grad()
    return watch.first, bad


def all_finite(value: Any) -> bool:
    """Whether all tensors in a module's output are finite; ids and masks are."""
    if isinstance(value, Tensor):
        return bool(torch.isfinite(value).all())
    return not isinstance(value, tuple | list) or all(map(all_finite, value))


@contextmanager
def _watched(watch: Watch, model: nn.Module) -> Iterator[None]:
    """Report every call of every module to `watch`."""
    handles = []
    for name, module in model.named_modules():
        handles += [
            module.register_forward_pre_hook(lambda *_, name=name: watch.enter(name)),
            module.register_forward_hook(lambda *call: watch.leave(call[-1])),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
