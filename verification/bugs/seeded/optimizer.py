"""Mistakes in the update: clipping, moments, epsilon, decay."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torch_reference import optim, random, training
from torch_reference.gradients import part_loss
from torch_reference.losses import count_tokens
from torch_reference.models import Model
from torch_reference.optim import clip_by_global_norm, decay_mask, global_norm, make_optimizer
from transformer_spec.batch import Batch
from transformer_spec.train_config import TrainConfig
from verification.bugs.seeded_bug import SeededBug, swapped


def _made_by(wrong: Callable[..., Any]) -> partial[AbstractContextManager[None]]:
    return partial(swapped, training, "make_optimizer", wrong)


def _default_decay(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    return make_optimizer(model, replace(config, weight_decay=1e-2))


def _fixed_betas(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    return make_optimizer(model, replace(config, beta1=0.9, beta2=0.98, eps=1e-9))


def _groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    groups = make_optimizer(model, config).param_groups
    return [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups]


def _decay_in_gradient(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    betas = (config.beta1, config.beta2)
    return torch.optim.Adam(_groups(model, config), lr=0.0, betas=betas, eps=config.eps)


# (second moment, its bias correction, eps) -> the denominator of the update.
Root = Callable[[Tensor, float, float], Tensor]


class _AdamW(torch.optim.Optimizer):
    """AdamW written out, with a `root` of one's own."""

    def __init__(self, model: nn.Module, config: TrainConfig, root: Root):
        betas = (config.beta1, config.beta2)
        defaults = {"lr": 0.0, "betas": betas, "eps": config.eps, "weight_decay": 0.0}
        super().__init__(_groups(model, config), defaults)
        self.root = root

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:
            state["step"] = torch.zeros((), device=p.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["step"] += 1
        n = int(state["step"])
        m = state["exp_avg"].mul_(beta1).add_((1 - beta1) * grad)
        v = state["exp_avg_sq"].mul_(beta2).add_((1 - beta2) * grad.square())
        update = m / (1 - beta1**n) / self.root(v, 1 - beta2**n, group["eps"])
        p.sub_(group["lr"] * (update + group["weight_decay"] * p))


def _eps_before_correction(v: Tensor, correction: float, eps: float) -> Tensor:
    return (v.sqrt() + eps) / correction**0.5


def _eps_inside(v: Tensor, correction: float, eps: float) -> Tensor:
    return (v / correction + eps).sqrt()


def _decay_elsewhere(model: nn.Module, decay_all: bool) -> dict[str, bool]:
    return {name: not decayed for name, decayed in decay_mask(model, decay_all).items()}


def _decay_by_axes(model: nn.Module, decay_all: bool) -> dict[str, bool]:
    # As a scan over the layers holds them: the layer's number is an axis of each parameter.
    return {name: p.ndim + (".layers." in name) > 1 for name, p in model.named_parameters()}


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


BUGS = (
    SeededBug(
        id="OPT-01",
        name="Weight decay left at the default",
        component="optimizer",
        sources=(
            "https://github.com/google-deepmind/optax/issues/1426",
            "https://github.com/jolibrain/deepdetect/pull/1462",
            "https://github.com/finegrain-ai/refiners/pull/320",
            "https://github.com/huggingface/transformers/issues/7214",
        ),
        how="AdamW decays by torch's own 1e-2, whatever the config says.",
        case="decoder",
        at="optimizer.decay",
        cause="decay 0.01, where the reference has 0.1",
        install=_made_by(_default_decay),
    ),
    SeededBug(
        id="OPT-02",
        name="Decay as a term of the gradient",
        component="optimizer",
        sources=(
            "https://github.com/google-deepmind/optax/issues/417",
            "https://github.com/google-deepmind/optax/issues/494",
            "https://github.com/google-deepmind/optax/issues/364",
        ),
        how="decay * p is added to the gradient, goes through both moments and is rescaled there.",
        case="decoder",
        at="optimizer.moments",
        cause=r"decay 0.1 \* p is added to the gradient",
        install=_made_by(_decay_in_gradient),
    ),
    SeededBug(
        id="OPT-04",
        name="Epsilon outside the bias correction",
        component="optimizer",
        sources=(
            "https://github.com/karpathy/nanochat/issues/304",
            "https://github.com/pytorch/pytorch/pull/22628",
            "https://github.com/tensorflow/tensorflow/issues/9047",
            "https://github.com/keras-team/keras/issues/17391",
        ),
        how="eps is added to sqrt(v) before that is divided by sqrt(1 - b2^n), which enlarges it.",
        case="decoder",
        at="optimizer.bias_correction",
        cause="epsilon is added before the bias correction",
        install=_made_by(partial(_AdamW, root=_eps_before_correction)),
    ),
    SeededBug(
        id="OPT-05",
        name="Epsilon under the root of the second moment",
        component="optimizer",
        sources=(
            "https://github.com/FluxML/Flux.jl/pull/448",
            "https://github.com/d2l-ai/d2l-zh/pull/502",
            "https://github.com/sail-sg/Adan/issues/8",
        ),
        how="The update is divided by sqrt(v + eps), where 1e-8 acts as 1e-4.",
        case="decoder",
        at="optimizer.bias_correction",
        cause="epsilon inside the root, where the reference has it beside the root",
        install=_made_by(partial(_AdamW, root=_eps_inside)),
    ),
    SeededBug(
        id="OPT-08",
        name="Decay of what should be spared",
        component="optimizer",
        sources=(
            "https://github.com/huggingface/transformers/issues/11936",
            "https://github.com/huggingface/transformers/pull/11964",
        ),
        how="The decay mask is negated: norms, biases and embeddings decay, matrices do not.",
        case="decoder",
        at="optimizer.decay",
        cause=r"decay 0.1, where the reference has 0 \(in embed.weight",
        install=partial(swapped, optim, "decay_mask", _decay_elsewhere),
    ),
    SeededBug(
        id="OPT-10",
        name="Biases of stacked layers decay",
        component="optimizer",
        sources=("https://github.com/salesforce/jaxformer/issues/28",),
        how="What has more than one axis decays, and layers stacked for a scan have one more: "
        "their biases and norms decay too. (The twin keeps its layers apart; the rule is asked of "
        "the shapes that they would have stacked.)",
        case="decoder",
        at="optimizer.decay",
        cause="^decay by the number of axes, with that of stacked layers",
        install=partial(swapped, optim, "decay_mask", _decay_by_axes),
    ),
    SeededBug(
        id="OPT-11",
        name="Betas and epsilon written into the code",
        component="optimizer",
        sources=(
            "https://github.com/OpenNMT/OpenNMT-py/issues/382",
            "https://github.com/mlpnlp/mlpnlp-nmt/pull/4",
        ),
        how="Adam runs with 0.9, 0.98 and 1e-9, whatever the config says.",
        case="decoder",
        at="optimizer.moments",
        cause="beta1 0.9, where the reference has 0.8",
        install=_made_by(_fixed_betas),
    ),
    SeededBug(
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
    SeededBug(
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
    SeededBug(
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
