"""The loss and its gradient by the logits, on both sides from the same logits and labels."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

import flax_transformer.gradients as flax_gradients
import torch_reference.gradients as torch_gradients
from parity.explain.causes.evidence import Cause, deviation, explains
from parity.judge.errors import relative_error
from parity.observe.arrays import to_numpy
from verification.stages.finding import Finding

TorchLoss = Callable[[Tensor, Tensor, Tensor, float], Tensor]
BATCH, LENGTH, VOCABULARY, SMOOTHING = 3, 7, 113, 0.1


def compare_losses(dtype: str = "float64", tolerance: float = 1e-12) -> list[Finding]:
    """Where the twins' losses differ, and why. Rows hold different numbers of tokens."""
    rng = np.random.default_rng(23)
    logits = 2 * rng.normal(size=(BATCH, LENGTH, VOCABULARY))
    labels = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    mask = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 2], [3]])
    labels = np.where(mask, labels, -1)
    ours = _flax(logits, labels, mask, dtype)
    theirs = _torch(torch_gradients.cross_entropy, logits, labels, mask, dtype)
    error = max(relative_error(theirs[0], ours[0]), relative_error(theirs[1], ours[1]))
    if error <= tolerance:
        return []
    known = dict(_forms(dtype))
    causes = [
        Cause(text, fix, deviation(predicted[1], theirs[1]))
        for text, (form, fix) in known.items()
        for predicted in [_torch(form, logits, labels, mask, dtype)]
        if explains(predicted[1], theirs[1]) and explains(predicted[0], theirs[0])
    ]
    causes = causes or list(_solved_smoothing(logits, labels, mask, theirs))
    return [Finding("loss", "the loss or its gradient", error, causes[:1])]


def _flax(logits, labels, mask, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    def loss(x):
        arrays = jnp.asarray(labels), jnp.asarray(mask)
        return flax_gradients.cross_entropy(x, *arrays, SMOOTHING)

    value, grad = jax.value_and_grad(loss)(jnp.asarray(logits, dtype))
    return to_numpy(value), to_numpy(grad)


def _torch(loss: TorchLoss, logits, labels, mask, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x = torch.tensor(logits).to(getattr(torch, dtype)).requires_grad_()
    value = loss(x, torch.tensor(labels), torch.tensor(mask), SMOOTHING)
    (grad,) = torch.autograd.grad(value, x)
    return to_numpy(value), to_numpy(grad)


def _per_token(logits: Tensor, labels: Tensor, smoothing: float, spread: Tensor) -> Tensor:
    """Cross-entropy against 1 - s on the label and `spread` over the classes."""
    log_probs = logits.log_softmax(-1)
    target = log_probs.gather(-1, labels[..., None])[..., 0]
    return -(1 - smoothing) * target - (log_probs * spread).sum(-1)


def _spread(kind: str, labels: Tensor, smoothing: float, dtype: torch.dtype) -> Tensor:
    one_hot = torch.nn.functional.one_hot(labels, VOCABULARY).to(dtype)
    match kind:
        case "all":
            return torch.full_like(one_hot, smoothing / VOCABULARY)
        case "others":
            return smoothing / (VOCABULARY - 1) * (1 - one_hot)
        case "others but class 0":
            rest = torch.ones_like(one_hot)
            rest[..., 0] = 0
            return smoothing / (VOCABULARY - 2) * (1 - one_hot) * rest
        case _:
            spread = torch.full_like(one_hot, smoothing / VOCABULARY)
            spread[..., int(kind)] = 0
            return spread


def _mean(each: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, each, 0.0).sum() / mask.sum()


def _smoothed(kind: str) -> TorchLoss:
    def loss(logits: Tensor, labels: Tensor, mask: Tensor, smoothing: float) -> Tensor:
        safe = torch.where(mask, labels, 0)
        spread = _spread(kind, safe, smoothing, logits.dtype)
        return _mean(_per_token(logits, safe, smoothing, spread), mask)

    return loss


def _weighted(weight: Callable[[Tensor, Tensor], Tensor], instead: int = 0) -> TorchLoss:
    """The sum of the tokens' losses, each times weight(mask); masked labels read `instead`."""

    def loss(logits: Tensor, labels: Tensor, mask: Tensor, smoothing: float) -> Tensor:
        safe = torch.where(mask, labels, instead % VOCABULARY)
        spread = _spread("all", safe, smoothing, logits.dtype)
        each = _per_token(logits, safe, smoothing, spread)
        return (each * weight(mask, each)).sum()

    return loss


def _shifted(step: int) -> TorchLoss:
    def moved(x: Tensor) -> Tensor:
        edge = x[:, :1] if step > 0 else x[:, -1:]
        return torch.cat([edge, x[:, :-1]] if step > 0 else [x[:, 1:], edge], 1)

    def loss(logits: Tensor, labels: Tensor, mask: Tensor, smoothing: float) -> Tensor:
        return _smoothed("all")(logits, moved(labels), moved(mask), smoothing)

    return loss


def _forms(dtype: str) -> Iterator[tuple[str, tuple[TorchLoss, str]]]:
    """What a loss may do instead of the mean over unmasked tokens, smoothed over all classes."""
    if dtype != "float64":
        fix = "widen the logits to float32 before log_softmax"
        yield f"log_softmax in {dtype}", (_narrow, fix)
        return
    smoothing = "spread the smoothing mass over all V classes"
    yield "smoothing spread over the V - 1 other classes", (_smoothed("others"), smoothing)
    text = "smoothing spread over V - 2 classes, without class 0"
    yield text, (_smoothed("others but class 0"), smoothing)
    text = "smoothing leaves out class V - 100: a negative ignore index used as an index"
    yield text, (_smoothed(str(VOCABULARY - 100)), smoothing)
    inverted = _weighted(lambda mask, each: (~mask).to(each.dtype) / mask.sum())
    yield "the label mask is inverted", (inverted, "count the tokens where the mask is True")
    for instead in (0, -1):
        every = _weighted(lambda mask, each: torch.ones_like(each) / mask.numel(), instead)
        text = f"the label mask is ignored: a masked label is looked up as class {instead}"
        yield text, (every, "leave masked tokens out of the sum and of the count")
        summed = _weighted(lambda mask, each: mask.to(each.dtype) / mask.numel(), instead)
        yield "the sum is divided by all tokens", (summed, "divide by the unmasked tokens")
    rows = _weighted(lambda mask, each: mask.to(each.dtype) / mask.sum(1, keepdim=True) / len(mask))
    yield "mean of the rows' means", (rows, "divide one sum over all rows by all their tokens")
    total = _weighted(lambda mask, each: mask.to(each.dtype))
    yield "the sum, not the mean", (total, "divide by the number of unmasked tokens")
    for step in (1, -1):
        fix = "shift the labels once, where the batch is made"
        yield f"labels are shifted by {step:+d}", (_shifted(step), fix)


def _narrow(logits: Tensor, labels: Tensor, mask: Tensor, smoothing: float) -> Tensor:
    safe = torch.where(mask, labels, 0)
    log_probs = logits.log_softmax(-1)
    target = log_probs.gather(-1, safe[..., None])[..., 0]
    return _mean(-(1 - smoothing) * target - smoothing * log_probs.mean(-1), mask)


def _solved_smoothing(logits, labels, mask, theirs) -> Iterator[Cause]:
    """The loss is linear in the smoothing: its value gives it, its gradient confirms it."""

    def at(smoothing: float) -> tuple[np.ndarray, np.ndarray]:
        form = _smoothed("all")
        return _torch(lambda x, y, m, _: form(x, y, m, smoothing), logits, labels, mask, "float64")

    none, full = at(0.0), at(1.0)
    smoothing = float((theirs[0] - none[0]) / (full[0] - none[0]))
    if explains(at(smoothing)[1], theirs[1]):
        text = f"label smoothing {smoothing:.6g}, where the reference has {SMOOTHING}"
        yield Cause(text, f"smooth by {SMOOTHING}", deviation(at(smoothing)[1], theirs[1]))
