"""The balance loss of routers and its gradient, on both sides from the same logits."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

import flax_transformer.gradients as flax_gradients
import torch_reference.gradients as torch_gradients
from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, deviation, explains
from parity.judge.errors import relative_error
from parity.observe.arrays import to_numpy
from parity.observe.flax_side import compile_fast
from verification.stages.finding import Finding

LAYERS, BATCH, LENGTH, EXPERTS, TOP_K = 3, 4, 7, 5, 2
SIZES = {"number of layers": LAYERS, "number of experts": EXPERTS, "top_k": TOP_K}
Losses = tuple[np.ndarray, np.ndarray]


def compare_router_losses(tolerance: float = 1e-12) -> list[Finding]:
    """Where the twins' router losses differ, and why. Rows hold different numbers of tokens."""
    ours = _flax()
    logits = torch.tensor(_logits()).requires_grad_()
    loss = torch_gradients.router_loss(list(logits), TOP_K, torch.tensor(_mask()))
    theirs = _with_gradient(loss, logits)
    error = max(relative_error(theirs[0], ours[0]), relative_error(theirs[1], ours[1]))
    if error <= tolerance:
        return []
    return [
        Finding("loss.router", "the balance loss or its gradient", error, _causes(ours, theirs))
    ]


def _logits() -> np.ndarray:
    """Every layer has a favourite of its own, so that layers and choices are not alike."""
    rng = np.random.default_rng(43)
    favourite = 2 * np.eye(EXPERTS)[:LAYERS, None, None]
    return rng.normal(size=(LAYERS, BATCH, LENGTH, EXPERTS)) + favourite


def _mask() -> np.ndarray:
    return np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 2], [3], [1]])


@cache
def _flax() -> Losses:
    def loss(x: jax.Array) -> jax.Array:
        return flax_gradients.router_loss(list(x), TOP_K, jnp.asarray(_mask()))

    both = compile_fast(jax.value_and_grad(loss))
    value, grad = both(jnp.asarray(_logits()))
    return to_numpy(value), to_numpy(grad)


def _with_gradient(loss: Tensor, logits: Tensor) -> Losses:
    (grad,) = torch.autograd.grad(loss, logits)
    return to_numpy(loss), to_numpy(grad)


@dataclass(frozen=True)
class _Form:
    """What a balance loss does, part by part: factor * E * mean over groups of sum_e f_e P_e."""

    probabilities: str
    groups: str
    shares: str
    means: str
    choice: str


_OPTIONS = (
    ("softmax of the logits", "softmax of their softmax"),
    ("each layer by itself", "all layers end to end"),
    ("shares of tokens", "shares of tokens and padding"),
    ("mean probabilities of tokens", "mean probabilities of tokens and padding"),
    ("the experts that are chosen", "the first choice alone"),
)
_FIXES = (
    "hand over the router's logits, or take no second softmax",
    "take the loss of each layer, then the mean",
    "leave padding out of both",
    "leave padding out of both",
    "count every chosen expert",
)


def _causes(ours: Losses, theirs: Losses) -> list[Cause]:
    right, wrong = _identify(ours), _identify(theirs)
    if right is None or wrong is None:
        return []
    parts = zip(astuple(wrong[0]), astuple(right[0]), _FIXES, strict=True)
    causes = [
        Cause(f"{theirs_is}, where the reference has {ours_is}", fix, wrong[2])
        for theirs_is, ours_is, fix in parts
        if theirs_is != ours_is
    ]
    factor = wrong[1] / right[1]
    if abs(factor - 1) > 1e-9:
        text = f"scaled by {describe_constant(factor, SIZES)} against the reference"
        causes.append(Cause(text, f"multiply by {describe_constant(1 / factor, SIZES)}", wrong[2]))
    return causes


def _identify(found: Losses) -> tuple[_Form, float, float] | None:
    """(form, factor, residual) of a loss, the most ordinary first; the gradient confirms it."""
    for form in _forms():
        logits = torch.tensor(_logits()).requires_grad_()
        value, grad = _with_gradient(_loss(form, logits), logits)
        factor = float(found[0] / value)
        if explains(factor * grad, found[1]):
            return form, factor, deviation(factor * grad, found[1])
    return None


def _forms() -> Iterator[_Form]:
    """By the number of parts that are not ordinary."""
    every = product(*([(i, text) for i, text in enumerate(texts)] for texts in _OPTIONS))
    for parts in sorted(every, key=lambda parts: sum(i for i, _ in parts)):
        yield _Form(*(text for _, text in parts))


def _loss(form: _Form, logits: Tensor) -> Tensor:
    probs = logits.softmax(-1)
    if form.probabilities == _OPTIONS[0][1]:
        probs = probs.softmax(-1)
    count = TOP_K if form.choice == _OPTIONS[4][0] else 1
    best = logits.topk(count, -1).indices
    chosen = torch.nn.functional.one_hot(best, EXPERTS).sum(-2).to(probs.dtype)
    over = (1, 2) if form.groups == _OPTIONS[1][0] else (0, 1, 2)
    shares = _mean(chosen, form.shares == _OPTIONS[2][1], over)
    means = _mean(probs, form.means == _OPTIONS[3][1], over)
    return EXPERTS * (shares * means).sum(-1).mean()


def _mean(x: Tensor, padding_too: bool, over: tuple[int, ...]) -> Tensor:
    mask = torch.tensor(_mask())[None, :, :, None].expand(LAYERS, -1, -1, 1).to(x.dtype)
    mask = torch.ones_like(mask) if padding_too else mask
    return (x * mask).sum(over) / mask.sum(over)
