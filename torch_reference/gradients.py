"""The loss of an update's batch and its gradient, in one piece or summed over small batches."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call

from torch_reference import random
from torch_reference.dropout import set_dropout_keys
from torch_reference.losses import count_correct, count_tokens, cross_entropy, router_loss
from torch_reference.models import EncoderOutputs, Model
from transformer_spec.batch import Batch
from transformer_spec.config import MixtureOfExperts
from transformer_spec.taps import collecting
from transformer_spec.train_config import TrainConfig

Metrics = dict[str, Tensor]


def in_dtype(model: Model, dtype: str) -> Callable[..., Any]:
    """The model's call in the dtype of arithmetic; gradients keep the parameters' dtype."""
    narrow = getattr(torch, dtype)
    if all(p.dtype == narrow for p in model.parameters()):
        return model

    def call(**inputs: Tensor) -> Any:
        rounded = {name: p.to(narrow) for name, p in model.named_parameters()}
        return functional_call(model, rounded, (), inputs)

    return call


def token_logits(outputs: Tensor | EncoderOutputs) -> Float[Tensor, "B T V"]:
    """The logits that a loss is computed from; an encoder's are its masked-token head's."""
    if not isinstance(outputs, EncoderOutputs):
        return outputs
    if outputs.logits is None:
        raise ValueError("model: an encoder without masked_lm has no logits to train on")
    return outputs.logits


def part_loss(
    model: Model,
    part: Batch,
    total: Int[Tensor, ""],
    key: random.Key,
    *,
    forward: Callable[..., Any],
    config: TrainConfig,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """A small batch's share of the loss of its batch, and its correct tokens, dropout on."""
    set_dropout_keys(model, key)
    with collecting("router_logits") as routed:
        outputs = forward(**part.inputs)
    logits = token_logits(outputs)
    loss = cross_entropy(logits, part.labels, part.label_mask, config.label_smoothing, total)
    ffn = model.config.ffn
    if config.router_loss and isinstance(ffn, MixtureOfExperts):
        mask, share = part.inputs.get("token_mask"), config.router_loss / config.accumulation
        loss += share * router_loss(routed, ffn.top_k, mask)
    return loss, count_correct(logits.detach(), part.labels, part.label_mask)


def gradients(
    model: Model,
    batch: Batch,
    key: random.Key,
    update: int,
    *,
    forward: Callable[..., Any],
    config: TrainConfig,
) -> tuple[list[Tensor], Metrics]:
    """The gradient of a batch's loss, and the loss and the correct tokens themselves.

    L = (sum over all tokens that count in the batch of their losses) / (their number)

    whatever the number A = `config.accumulation` of small batches: each loss is divided by the
    number of tokens of the whole batch, and the gradients are summed. Clipping, counting and the
    schedule apply to the update. Small batch i = 0 .. A - 1 of the update drops values under
    the key fold_in(key, A * update + i).

    A router's balance loss is not a sum over tokens but a product of two means: it is computed for
    each small batch separately, with weight 1 / A, and so depends on A.

    Args:
        update: how many updates came before.
        forward: the model's call, compiled or in another dtype (`in_dtype`).
    Raises:
        ValueError: A does not divide the rows of the batch.
    Differences: `optax.MultiSteps` takes the mean of the small batches' gradients, and so does the
        usual `(loss / A).backward()` of torch: a mean of means, another gradient wherever small
        batches hold different numbers of tokens.
    """
    model.train()
    model.zero_grad(set_to_none=True)
    total = count_tokens(batch.label_mask)
    first, found = config.accumulation * update, []
    for number, part in enumerate(batch.parts(config.accumulation)):
        part_key = random.fold_in(key, first + number)
        loss, correct = part_loss(model, part, total, part_key, forward=forward, config=config)
        loss.backward()
        found.append((loss.detach(), correct))
    losses, correct = zip(*found, strict=True)
    return _grads(model), {
        "loss": reduce(torch.add, losses),
        "correct": reduce(torch.add, correct),
    }


def _grads(model: Model) -> list[Tensor]:
    """Every parameter's gradient: zero, as jax has it, where the loss does not depend on it.

    None would leave such a parameter out of the update, and so undecayed.
    """
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [p.grad for p in model.parameters() if p.grad is not None]
