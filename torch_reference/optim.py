"""The update rule: clip, Adam, decoupled decay. The learning rate is handed in at each step."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_spec.parameters import is_decayed
from transformer_spec.train_config import TrainConfig


def decay_mask(model: nn.Module, decay_all: bool) -> dict[str, bool]:
    """True for each parameter that weight decay applies to.

    torch's AdamW decays every parameter of a group alike; so does optax without a mask.
    """
    return {name: decay_all or is_decayed(name) for name, _ in model.named_parameters()}


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """`torch.optim.AdamW`, after `clip_by_global_norm` has been applied to the gradients.

    g <- g * min(1, c / ||g||)                        c: clip_norm, the norm over all parameters
    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    u  = (m / (1 - b1^n)) / (sqrt(v / (1 - b2^n)) + eps) + decay * p

    and p <- p - lr u. With decay 0 it is Adam.

    Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2; Pascanu et al.
    2013 (clipping).
    Differences: weight_decay defaults to 1e-4 in optax.adamw and to 1e-2 in torch.optim.AdamW;
    `torch.nn.utils.clip_grad_norm_` divides by ||g|| + 1e-6.
    """
    decays = decay_mask(model, config.decay_all)
    parameters = dict(model.named_parameters())
    groups = [
        {"params": [parameters[n] for n in decays if decays[n] is decayed], "weight_decay": decay}
        for decayed, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    # Every argument is given: no release of torch decides one.
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
        foreach=False,
        capturable=False,
        differentiable=False,
        fused=True,
    )


def global_norm(tensors: list[Tensor]) -> Float[Tensor, ""]:
    """The Euclidean norm of all gradients concatenated."""
    return torch.nn.utils.get_total_norm(
        tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None
    )


def clip_by_global_norm(grads: list[Tensor], norm: Float[Tensor, ""], max_norm: float) -> None:
    """Scale `grads`, whose global norm is `norm`, in place to a norm of at most `max_norm`."""
    factor = (max_norm / norm).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)


def apply_updates(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """p - lr u"""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
