"""Losses by logits held against each other: weight, label and smoothing of every row, solved.

    d loss / d z_ij = w_i * (softmax(z_i)_j - (1 - s) * [j = y_i] - s / V)

Of V values in each row three unknowns are solved, so that a row says by itself what it counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.explain.causes.evidence import Cause
from parity.models.failures import JAX_RUNS, TORCH_RUNS, blaming
from parity.observe import settings
from parity.observe.settings import NotComparableError
from parity.training.result import Finding, TrainingResult

TIGHT = 1e-10
FEWEST_CLASSES = 8


@dataclass(frozen=True)
class Rows:
    """What a loss makes of every row of logits.

    Args:
        weights: 0 where a row does not count.
        labels: -1 where a row does not count.
        smoothing: what every class but the label gets, the same in all rows.
    """

    weights: np.ndarray
    labels: np.ndarray
    smoothing: float


def compare_losses(
    torch_loss: Callable[..., Any], jax_loss: Callable[..., Any], logits: np.ndarray, *rest: Any
) -> TrainingResult:
    """Hold a loss of logits in JAX against one in torch.

    Args:
        torch_loss, jax_loss: (logits, *rest) to the loss.
        logits: [..., V], best with rows of several lengths and of unequal contents.
        rest: labels, masks, as NumPy arrays; labels first.
    """
    settings.make_comparable()
    ours, theirs = _torch(torch_loss, logits, rest), _jax(jax_loss, logits, rest)
    found, compared = [], {}
    for what, a, b in zip(("loss", "gradient by logits"), ours, theirs, strict=True):
        size = float(np.linalg.norm(a))
        gap = float(np.linalg.norm(a - b))
        if not np.isfinite(gap) or size == 0:
            raise NotComparableError(f"the {what} holds NaN or infinities, or is 0")
        compared[what] = gap / size
        near = logits * (1 + np.finfo(float).eps)
        moved = _torch(torch_loss, near, rest)[0 if what == "loss" else 1]
        if gap > 32 * float(np.linalg.norm(moved - a)) + 1e-13 * size:
            found.append(Finding(what, "the same logits", gap / size))
    if found:
        solved = [solve_rows(logits, side[1]) for side in (ours, theirs)]
        causes = _causes(solved[0], solved[1], rest, logits.shape[-1])
        found[0] = Finding(found[0].what, found[0].where, found[0].error, causes)
    return TrainingResult(found[:1], compared)


def _torch(loss: Callable[..., Any], logits: np.ndarray, rest: Any) -> list[np.ndarray]:
    x = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    with blaming(TORCH_RUNS):
        value = loss(x, *(torch.tensor(a) for a in rest))
        (grad,) = torch.autograd.grad(value, x)
    return [value.detach().numpy(force=True), grad.numpy(force=True)]


def _jax(loss: Callable[..., Any], logits: np.ndarray, rest: Any) -> list[np.ndarray]:
    with blaming(JAX_RUNS):
        others = [jnp.asarray(a) for a in rest]
        value, grad = jax.value_and_grad(lambda x: loss(x, *others))(jnp.asarray(logits))
    return [np.asarray(value), np.asarray(grad)]


def solve_rows(logits: np.ndarray, gradient: np.ndarray) -> Rows | None:
    """Weights, labels and smoothing; None where the gradient is not of this form."""
    classes = logits.shape[-1]
    if classes < FEWEST_CLASSES:
        return None
    z, g = logits.reshape(-1, classes), gradient.reshape(-1, classes)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    weights, labels, shares = np.zeros(len(z)), np.full(len(z), -1), []
    for i, (row, probs) in enumerate(zip(g, p, strict=True)):
        size = float(np.linalg.norm(row))
        if size <= 1e-14 * float(np.abs(g).max()):
            continue
        # The label's value is the one that is no line of its probability.
        solved = None
        for label in np.argsort(-np.abs(row))[:3]:
            rest = np.arange(classes) != label
            matrix = np.stack([probs[rest], np.ones(classes - 1)], 1)
            (weight, share), *_ = np.linalg.lstsq(matrix, row[rest], rcond=None)
            left = np.linalg.norm(matrix @ (weight, share) - row[rest])
            target = probs[label] - row[label] / weight if weight else np.nan
            total = target - (classes - 1) * share / weight if weight else np.nan
            if left <= TIGHT * size and abs(total - 1) <= 1e-8:
                solved = weight, label, -share / weight
        if solved is None:
            return None
        weights[i], labels[i] = solved[0], solved[1]
        shares.append(solved[2])
    if not shares or np.ptp(shares) > 1e-9:
        return None
    spread = float(np.mean(shares))
    return Rows(weights.reshape(logits.shape[:-1]), labels.reshape(logits.shape[:-1]), spread)


def _causes(ours: Rows | None, theirs: Rows | None, rest: Any, classes: int) -> list[Cause]:
    if ours is None or theirs is None:
        return []
    found = []
    counted, others = ours.weights != 0, theirs.weights != 0
    if not np.array_equal(counted, others):
        more, fewer = int((others & ~counted).sum()), int((counted & ~others).sum())
        text = f"{more} tokens count that do not in the reference, {fewer} that do there do not"
        labels = np.asarray(rest[0]) if rest else None
        ignored = [] if labels is None else np.unique(labels[counted & ~others])
        if more == 0 and labels is not None and len(ignored) == 1:
            whole = not others[labels == ignored[0]].any()
            text += f": label {ignored[0]} is ignored" if whole else ""
        found.append(Cause(text, "count the same tokens: compare label masks"))
    both = counted & others
    if not np.array_equal(ours.labels[both], theirs.labels[both]):
        shifted = _shift(ours.labels, theirs.labels, both)
        text = "labels differ" if shifted is None else f"labels are shifted by {shifted:+d}"
        found.append(Cause(f"{text} from the reference's", "shift labels once"))
    if abs(ours.smoothing - theirs.smoothing) > 1e-9:
        found.append(_smoothing(ours, theirs, classes))
    elif both.any():
        found += _weights(ours.weights, theirs.weights, both)
    return found


def _shift(ours: np.ndarray, theirs: np.ndarray, both: np.ndarray) -> int | None:
    if ours.ndim < 2:
        return None
    for step in (1, -1):
        seen = both & np.roll(both, step, -1)
        edge = 0 if step > 0 else -1
        seen[..., edge] = False
        if seen.sum() >= 4 and np.array_equal(theirs[seen], np.roll(ours, step, -1)[seen]):
            return step
    return None


def _smoothing(ours: Rows, theirs: Rows, classes: int) -> Cause:
    """Smoothing over V classes and over V - 1 are told apart by their ratio alone."""
    a, b = (0.0 if abs(r.smoothing) < 1e-12 else r.smoothing for r in (ours, theirs))
    fix = "use one smoothing, spread over as many classes (over all V in torch and optax)"
    if a and abs(b / a * (classes - 1) / classes - 1) <= 1e-9:
        text = "label smoothing is spread over the V - 1 other classes, in the reference over V"
        return Cause(text, fix)
    text = f"label smoothing {classes * b:.6g}, where the reference has {classes * a:.6g}"
    return Cause(f"{text} (spread over all V classes)", fix)


def _weights(ours: np.ndarray, theirs: np.ndarray, both: np.ndarray) -> list[Cause]:
    ratio = theirs[both] / ours[both]
    if np.ptp(ratio) <= 1e-9 * abs(ratio[0]):
        if abs(ratio[0] - 1) <= 1e-9:
            return []
        factor = float(ratio[0])
        forms = [name for name, count in _counts(both).items() if _is_ratio(factor, count, both)]
        said = f": it divides by {forms[0]}, the reference by another" if len(forms) == 1 else ""
        text = f"every token weighs {factor:.6g} times as much as in the reference{said}"
        return [Cause(text, "divide by the number that the reference divides by")]
    if ours.ndim == 2:
        if _is_mean_of_means(theirs, ours, both):
            text = "mean of the sequences' means, where the reference is one mean over all tokens"
            return [Cause(text, "divide one sum by all tokens")]
        if _is_mean_of_means(ours, theirs, both):
            text = "one mean over all tokens, where the reference is the mean of sequences' means"
            return [Cause(text, "take each sequence's mean first")]
    return []


def _is_mean_of_means(rows: np.ndarray, whole: np.ndarray, both: np.ndarray) -> bool:
    """Whether tokens weigh 1 / length in their own row, and all the same on the other side."""
    per_row = [w[b] for w, b in zip(rows, both, strict=True) if b.any()]
    counts = np.array([b.sum() for b in both if b.any()])
    first = np.array([w[0] for w in per_row])
    flat = all(np.ptp(w) <= 1e-9 * abs(w[0]) for w in per_row)
    even = np.ptp(whole[both]) <= 1e-9 * abs(whole[both][0])
    uneven_rows = len(set(counts)) > 1
    return bool(flat and even and uneven_rows and np.ptp(first * counts) <= 1e-9 * first[0])


def _counts(both: np.ndarray) -> dict[str, float]:
    return {
        "1 (a sum)": 1.0,
        "all tokens, those that do not count too": float(both.size),
        "the number of sequences": float(len(both)),
        "the tokens that count": float(both.sum()),
    }


def _is_ratio(factor: float, count: float, both: np.ndarray) -> bool:
    """Whether dividing by `count` in place of the tokens that count makes the factor."""
    return abs(factor * count / both.sum() - 1) <= 1e-9
