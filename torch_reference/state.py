"""What an update reads and writes, converted to named arrays and back."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torch_reference import random
from torch_reference.models import Model
from transformer_spec.state import Named, NamedState


@dataclass
class TrainState:
    """All that an update reads and writes."""

    step: int
    model: Model
    optimizer: torch.optim.Optimizer
    dropout_key: random.Key


def to_named(state: TrainState) -> NamedState:
    """A copy of the state on the host: the next update works in place.

    Differences: torch keeps a count and moments with each parameter, from its first update on,
    optax one count and trees of moments.
    """
    return NamedState(
        state.step,
        state.dropout_key.numpy(force=True).view(np.uint32).copy(),
        {name: _array(p) for name, p in state.model.named_parameters()},
        _moments(state, "exp_avg"),
        _moments(state, "exp_avg_sq"),
    )


@torch.no_grad()
def from_named(named: NamedState, state: TrainState) -> TrainState:
    """The saved state, put into `state`.

    Raises:
        ValueError: a name, shape or dtype differs from that in `state`, or a value is not finite.
    """
    parameters = dict(state.model.named_parameters())
    dtype = str(next(iter(parameters.values())).dtype).removeprefix("torch.")
    named.check({name: tuple(p.shape) for name, p in parameters.items()}, dtype)
    for name, parameter in parameters.items():
        parameter.copy_(torch.tensor(named.params[name]))
        state.optimizer.state[parameter] = {
            # Of this dtype and there, as a fused optimizer has it.
            "step": torch.tensor(float(named.step), dtype=torch.float32, device=parameter.device),
            "exp_avg": _like(parameter, named.first_moment[name]),
            "exp_avg_sq": _like(parameter, named.second_moment[name]),
        }
    state.step = named.step
    state.dropout_key = torch.tensor(named.dropout_key.view(np.int32)).to(state.dropout_key.device)
    return state


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.numpy(force=True).copy()


def _moments(state: TrainState, key: str) -> Named:
    """One of Adam's moments of every parameter; zero before the first update."""
    return {
        name: _array(state.optimizer.state.get(p, {}).get(key, torch.zeros_like(p)))
        for name, p in state.model.named_parameters()
    }


def _like(parameter: Tensor, array: np.ndarray) -> Tensor:
    # A fused update goes through memory, whatever the strides: they must be the parameter's.
    return torch.empty_like(parameter).copy_(torch.tensor(array))
