"""What is said of an update that goes wrong where its batch is computed in small batches."""

from functools import partial

import pytest
import torch

import torch_reference.optim as torch_optim
import torch_reference.training as torch_training
from torch_reference import random
from torch_reference.gradients import part_loss
from torch_reference.losses import count_tokens
from torch_reference.optim import clip_by_global_norm, global_norm
from verification.bugs.cases import CASES
from verification.bugs.score import TRAIN
from verification.stages import accumulation, optimizer


def summed(model, batch, key, update, *, forward, config, scaled, total=count_tokens):
    """Gradients of small batches, each scaled, then summed."""
    parameters = list(model.parameters())
    sums = [torch.zeros_like(p) for p in parameters]
    for part in batch.parts(config.accumulation):
        model.zero_grad()
        of = batch if total is count_tokens else part
        loss, _ = part_loss(
            *(model, part, count_tokens(of.label_mask), random.key(0)),
            forward=forward,
            config=config,
        )
        loss.backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        scaled(grads)
        sums = [a + b for a, b in zip(sums, grads, strict=True)]
    for parameter, grad in zip(parameters, sums, strict=True):
        parameter.grad = grad
    return sums, {"loss": loss.detach()}


def clip_each(grads):
    clip_by_global_norm(grads, global_norm(grads), accumulation.CLIP_NORM)


def divide(grads):
    for grad in grads:
        grad.div_(accumulation.PARTS)


def distort(grads):
    grads[0].mul_(2)


def last_alone(model, batch, key, update, *, forward, config):
    (*_, last) = batch.parts(config.accumulation)
    model.zero_grad()
    total = count_tokens(batch.label_mask)
    loss, _ = part_loss(model, last, total, random.key(0), forward=forward, config=config)
    loss.backward()
    return [p.grad for p in model.parameters()], {"loss": loss.detach()}


FAULTS = {
    "each clipped": (
        partial(summed, scaled=clip_each),
        "optimizer.clip",
        "the gradient of each small batch is clipped by itself",
    ),
    "mean of means": (
        partial(summed, scaled=divide, total=None),
        "loss",
        "mean of the small batches' means",
    ),
    "the last alone": (last_alone, "accumulation", "the gradient of the last small batch alone"),
    "something else": (partial(summed, scaled=distort), "accumulation", None),
}


@pytest.mark.parametrize(("fault", "at", "cause"), FAULTS.values(), ids=FAULTS)
def test_what_small_batches_do_wrong_is_named(float64, monkeypatch, fault, at, cause):
    monkeypatch.setattr(torch_training, "gradients", fault)
    (found,) = accumulation.compare_accumulation(TRAIN)
    assert found.at == at
    assert [c.text for c in found.causes] == ([cause] if cause else [])


def test_nothing_is_said_of_what_is_right(float64):
    assert list(accumulation.compare_accumulation(TRAIN)) == []


@pytest.mark.slow
def test_a_rule_on_axes_is_told_from_one_on_stacked_layers(float64, monkeypatch):
    """Without stacking, embeddings alone are wrongly decayed."""

    def by_axes(model, decay_all):
        return {name: p.ndim > 1 for name, p in model.named_parameters()}

    monkeypatch.setattr(torch_optim, "decay_mask", by_axes)
    (found,) = optimizer.compare_updates(CASES["decoder"].config, TRAIN)
    texts = [cause.text for cause in found.causes]
    assert texts[0] == "decay by the number of axes: all that has more than one"
    assert "(in embed.weight, pos_embed.weight)" in texts[1]
