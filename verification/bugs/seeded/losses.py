"""Mistakes in the loss: labels, smoothing, which tokens count, precision."""

from functools import partial

import torch
from torch import Tensor

from torch_reference import gradients, losses
from torch_reference.losses import cross_entropy, token_losses
from torch_reference.norms import widen
from verification.bugs.seeded_bug import SeededBug, github, swapped


def _not_shifted(
    logits: Tensor, labels: Tensor, label_mask: Tensor, label_smoothing: float, total=None
) -> Tensor:
    # What is asked of token t is token t itself, which is the label of t - 1.
    labels, label_mask = (torch.cat([x[:, :1], x[:, :-1]], dim=1) for x in (labels, label_mask))
    return cross_entropy(logits, labels, label_mask, label_smoothing, total)


def _target(log_probs: Tensor, labels: Tensor) -> Tensor:
    return log_probs.gather(-1, labels[..., None])[..., 0]


def _spread_over_others(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    log_probs = widen(logits).log_softmax(dim=-1)
    target = _target(log_probs, labels)
    others = (log_probs.sum(-1) - target) / (logits.shape[-1] - 1)
    return -(1 - label_smoothing) * target - label_smoothing * others


def _one_class_left_out(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    log_probs = widen(logits).log_softmax(dim=-1)
    smooth = torch.full_like(log_probs[0, 0], label_smoothing / logits.shape[-1])
    if len(smooth) >= 100:
        smooth[-100] = 0.0
    return -(1 - label_smoothing) * _target(log_probs, labels) - log_probs @ smooth


def _padding_counted(
    logits: Tensor, labels: Tensor, label_mask: Tensor, label_smoothing: float, total=None
) -> Tensor:
    safe = torch.where(label_mask, labels, 0)
    each = torch.where(label_mask, 0.0, token_losses(logits, safe, label_smoothing))
    return each.sum() / (losses.count_tokens(label_mask) if total is None else total)


def _mean_of_row_means(
    logits: Tensor, labels: Tensor, label_mask: Tensor, label_smoothing: float, total=None
) -> Tensor:
    rows = zip(logits[:, None], labels[:, None], label_mask[:, None], strict=True)
    return torch.stack([cross_entropy(*row, label_smoothing) for row in rows]).mean()


def _in_the_models_dtype(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    log_probs = logits.log_softmax(dim=-1)
    target = _target(log_probs, labels)
    return -(1 - label_smoothing) * target - label_smoothing * log_probs.mean(-1)


def _ignored_is_last_class(
    logits: Tensor, labels: Tensor, label_mask: Tensor, label_smoothing: float, total=None
) -> Tensor:
    ignored = ~label_mask | (labels < 0)
    looked_up = torch.where(ignored, logits.shape[-1] - 1, labels)
    return token_losses(logits, looked_up, label_smoothing).mean()


def _ignored_kept(labels: Tensor, start: int, padding: int) -> Tensor:
    first = torch.full_like(labels[:, :1], start)
    return torch.cat([first, labels[:, :-1]], dim=1)


BUGS = (
    SeededBug(
        id="LOS-02",
        name="Labels are the tokens themselves",
        component="loss",
        sources=(
            "https://github.com/huggingface/transformers/issues/27517",
            "https://github.com/huggingface/transformers/issues/35066",
        ),
        how="Each token is to be predicted from itself: labels are one step behind.",
        case="decoder",
        at="loss",
        cause=r"labels are shifted by \+1",
        install=partial(swapped, gradients, "cross_entropy", _not_shifted),
    ),
    SeededBug(
        id="LOS-05",
        name="Smoothing spread over the other classes",
        component="loss",
        sources=(
            "https://github.com/OpenNMT/OpenNMT-py/issues/1463",
            "https://github.com/awslabs/sockeye/pull/203",
        ),
        how="The smoothed mass goes to the V - 1 wrong classes, none of it to the label.",
        case="decoder",
        at="loss",
        cause="smoothing spread over the V - 1 other classes",
        install=partial(swapped, losses, "token_losses", _spread_over_others),
    ),
    SeededBug(
        id="LOS-06",
        name="Ignore index reaches into the smoothing vector",
        component="loss",
        sources=("https://github.com/OpenNMT/OpenNMT-py/issues/1463",),
        how="Entry -100 of the smoothing vector is cleared, and that is a real class.",
        case="post",
        at="loss",
        cause="smoothing leaves out class V - 100",
        install=partial(swapped, losses, "token_losses", _one_class_left_out),
    ),
    SeededBug(
        id="LOS-07",
        name="Loss of the padding alone",
        component="loss",
        sources=("https://github.com/awslabs/sockeye/issues/200",),
        how="The mask is inverted where ignored tokens are cleared, so only those are left.",
        case="decoder",
        at="loss",
        cause="label mask is inverted",
        install=partial(swapped, gradients, "cross_entropy", _padding_counted),
    ),
    SeededBug(
        id="LOS-08",
        name="Mean of means",
        component="loss",
        sources=(
            "https://github.com/huggingface/transformers/pull/19494",
            "https://github.com/huggingface/transformers/pull/18297",
            "https://github.com/mlcommons/algorithmic-efficiency/pull/239",
            "https://github.com/huggingface/transformers/issues/37474",
        ),
        how="Each row is averaged over its own tokens first, so tokens of short rows weigh more.",
        case="decoder",
        at="loss",
        cause="mean of the rows' means",
        install=partial(swapped, gradients, "cross_entropy", _mean_of_row_means),
    ),
    SeededBug(
        id="LOS-10",
        name="Loss in half precision",
        component="loss",
        sources=(
            "https://github.com/google/flax/issues/677",
            "https://github.com/apple/axlearn/pull/18",
        ),
        how="log_softmax runs on bfloat16 logits that nobody widened to float32.",
        case="modern",
        at="loss",
        cause="log_softmax in bfloat16",
        install=partial(swapped, losses, "token_losses", _in_the_models_dtype),
    ),
    SeededBug(
        id="LOS-11",
        name="Ignored labels are looked up",
        component="loss",
        sources=(
            "https://github.com/keras-team/keras-hub/pull/2550",
            "https://github.com/PaddlePaddle/Paddle/pull/36891",
        ),
        how="A negative label picks the last class, and its loss counts in the mean.",
        case="decoder",
        at="loss",
        cause="label mask is ignored: .* class -1",
        install=partial(swapped, gradients, "cross_entropy", _ignored_is_last_class),
    ),
    SeededBug(
        id="ENC-04",
        name="Ignored labels or a wrong start token fed to the decoder",
        component="encoder-decoder",
        sources=github(
            "huggingface/transformers/pull/12150", "huggingface/transformers/issues/20842"
        ),
        how="Labels are shifted right as they are: -100 is handed to the embedding as an index.",
        case="decoder",
        at="loss.inputs",
        cause="^the ignored label -100 is kept, where the reference has 2$",
        install=partial(swapped, losses, "shift_right", _ignored_kept),
    ),
)
