"""Cross-entropy over the tokens that count."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torch_reference.norms import widen


def token_losses(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, "B T"]:
    """-sum_v p_v log softmax(logits)_v per token, in float32 or wider.

    p puts 1 - s on the label and spreads s evenly over all V classes, the label's own included.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4 (s = 0.1).
    Differences: `F.cross_entropy` of torch agrees; Sockeye and fairseq spread s over V - 1 classes,
    OpenNMT over V - 2.
    """
    log_probs = widen(logits).log_softmax(dim=-1)
    target = log_probs.gather(-1, labels[..., None])[..., 0]
    return -(1 - label_smoothing) * target - label_smoothing * log_probs.mean(-1)


def cross_entropy(
    logits: Float[Tensor, "B T V"],
    labels: Int[Tensor, "B T"],
    label_mask: Bool[Tensor, "B T"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The mean of `token_losses` over the tokens where `label_mask` is True; 0 where none is.

    A label under the mask may hold any value, -100 included: it is never looked up.
    """
    safe = torch.where(label_mask, labels, 0)
    losses = torch.where(label_mask, token_losses(logits, safe, label_smoothing), 0.0)
    return losses.sum() / label_mask.sum().clamp(min=1)


def count_correct(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_mask: Bool[Tensor, "B T"]
) -> Int[Tensor, ""]:
    """How many of the tokens under `label_mask` have their label as the largest logit."""
    return ((logits.argmax(-1) == labels) & label_mask).sum()


def count_exact(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_mask: Bool[Tensor, "B T"]
) -> Int[Tensor, ""]:
    """How many rows with tokens under `label_mask` have every one of them right.

    Such a row is what greedy decoding writes, token for token: each of its prefixes is.
    """
    right = (logits.argmax(-1) == labels) | ~label_mask
    return (right.all(dim=-1) & label_mask.any(dim=-1)).sum()
