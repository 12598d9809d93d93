"""Routers whose choices no rounding changes, for comparisons in low precision."""

import copy
from collections.abc import Callable, Mapping

import numpy as np
import torch

from parity.judge.precision import Roundings, rounding_floor
from parity.observe.arrays import as_tensor, is_float
from transformer_spec.config import MixtureOfExperts, ModelConfig
from transformer_spec.taps import collecting
from verification.twins.weights import off_the_kink

Named = dict[str, np.ndarray]
# The farthest of a few hundred values of mean 0: six times their deviation.
SIGMAS, DRAWS = 6, 100


def away_from_jumps(
    config: ModelConfig,
    module: torch.nn.Module,
    inputs: Mapping[str, np.ndarray],
    dtype: str,
    way: Roundings,
) -> Callable[[Named], Named]:
    """What leaves neither a ReLU nor a router near where it jumps; see `clear_choices`."""

    def adjust(named: Named) -> Named:
        named = off_the_kink(config, named)
        if isinstance(config.ffn, MixtureOfExperts):
            return clear_choices(config.ffn, module, inputs, dtype, way, named)
        return named

    return adjust


def clear_choices(
    slot: MixtureOfExperts,
    module: torch.nn.Module,
    inputs: Mapping[str, np.ndarray],
    dtype: str,
    way: Roundings,
    named: Named,
) -> Named:
    """The parameters, their routers drawn again until every choice is clear in `dtype`.

    What an expert gets jumps where two logits of a token change their order. After a chain of
    roundings a logit is off by floor(dtype, way) of the logits' root mean square, so that the
    difference of two is off by sqrt(2) times that, and a choice is clear if the last expert that
    is chosen leads the first that is not by SIGMAS times as much. Where it does not, a token may
    go to another expert in either framework: a property of the weights, as ReLU's kink is.

    Args:
        module: the torch twin; it is copied, not changed.
        way: the roundings from the inputs to the router's logits.
    Raises:
        RuntimeError: no draw leaves all choices clear.
    """
    needed = SIGMAS * 2**0.5 * rounding_floor(dtype, way)
    exact = copy.deepcopy(module).cpu().double().eval()
    held = {k: v.astype(dtype).astype(np.float64) if is_float(v) else v for k, v in inputs.items()}
    for draw in range(DRAWS):
        drawn = named | {n: w for n, w in _routers(named, draw).items() if draw}
        _fill(exact, {n: w.astype(dtype).astype(np.float64) for n, w in drawn.items()})
        with torch.no_grad(), collecting("router_logits") as logits:
            exact(**{name: as_tensor(array) for name, array in held.items()})
        if all(_lead(x, slot.top_k) >= needed for x in logits):
            return drawn
    raise RuntimeError(f"no router of {DRAWS} leads by {needed:.2g}: too many tokens for {dtype}")


def _routers(named: Named, draw: int) -> Named:
    rng = np.random.default_rng([draw, 53])
    names = [name for name in named if name.endswith("router.weight")]
    return {n: rng.normal(size=named[n].shape) * named[n].shape[1] ** -0.5 for n in names}


@torch.no_grad()
def _fill(module: torch.nn.Module, named: Named) -> None:
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.tensor(named[name]))


def _lead(logits: torch.Tensor, top_k: int) -> float:
    """By how much of the logits' root mean square the closest choice is made."""
    if top_k == logits.shape[-1]:
        return float("inf")
    ordered = logits.sort(dim=-1, descending=True).values
    closest = (ordered[..., top_k - 1] - ordered[..., top_k]).min()
    return float(closest / logits.square().mean().sqrt())
