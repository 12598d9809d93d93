"""Mistakes in clipping."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_reference import random, training
from torch_reference.gradients import part_loss
from torch_reference.losses import count_tokens
from torch_reference.models import Model
from torch_reference.optim import clip_by_global_norm, global_norm
from transformer_spec.batch import Batch
from transformer_spec.train_config import TrainConfig
from verification.bugs.planted.plant import Plant, swapped


def _clip_with_epsilon(grads: list[Tensor], norm: Tensor, max_norm: float) -> None:
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)


def _clip_as_it_sums(
    model: Model,
    batch: Batch,
    key: random.Key,
    update: int,
    *,
    forward: Callable[..., Any],
    config: TrainConfig,
) -> tuple[list[Tensor], dict[str, Any]]:
    model.zero_grad()
    parameters = list(model.parameters())
    total, summed = count_tokens(batch.label_mask), torch.tensor(0.0)
    grads: list[Tensor] = []
    for number, part in enumerate(batch.parts(config.accumulation)):
        own = random.fold_in(key, config.accumulation * update + number)
        loss, _ = part_loss(model, part, total, own, forward=forward, config=config)
        loss.backward()
        grads = [p.grad for p in parameters if p.grad is not None]
        clip_by_global_norm(grads, global_norm(grads), config.clip_norm or float("inf"))
        summed = summed + loss.detach()
    return grads, {"loss": summed}


def _clip_values(grads: list[Tensor], norm: Tensor, max_norm: float) -> None:
    for grad in grads:
        grad.clamp_(-max_norm, max_norm)


PLANTS = (
    Plant(
        id="CLP-01",
        name="Clipping with 1e-6 in the denominator",
        component="clip",
        sources=(
            "https://github.com/goodfire-ai/spd/issues/643",
            "https://github.com/goodfire-ai/spd/issues/645",
        ),
        how="Gradients are scaled by c / (norm + 1e-6).",
        case="decoder",
        at="optimizer.clip",
        cause="1e-06 is added to the norm",
        install=partial(swapped, training, "clip_by_global_norm", _clip_with_epsilon),
    ),
    Plant(
        id="CLP-03",
        name="Single values clipped",
        component="clip",
        sources=("https://github.com/pyro-ppl/numpyro/issues/2047",),
        how="Every entry is cut to [-c, c]; the norm over all of them is not looked at.",
        case="decoder",
        at="optimizer.clip",
        cause="single values are cut",
        install=partial(swapped, training, "clip_by_global_norm", _clip_values),
    ),
    Plant(
        id="CLP-04",
        name="Each small batch clipped",
        component="clip",
        sources=(
            "https://github.com/huggingface/transformers/issues/986",
            "https://github.com/facebookresearch/lingua/pull/59",
            "https://github.com/tenstorrent/tt-metal/issues/17568",
        ),
        how="Gradients are clipped after every small batch, as they are summed: late ones weigh "
        "more than early ones.",
        case="decoder",
        at="optimizer.clip",
        cause="the sum of gradients is clipped after every small batch",
        install=partial(swapped, training, "gradients", _clip_as_it_sums),
    ),
)
