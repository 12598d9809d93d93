"""The differences, one by one."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import torch
from torch.optim import lr_scheduler

from verification.defaults.probes import (
    WIDTH,
    clipped_by_optax,
    clipped_by_torch,
    denominator,
    dense,
    end_of_optax,
    end_of_torch,
    first_count_of_optax,
    first_count_of_torch,
    spread,
    torch_adam_decay,
)


@dataclass(frozen=True)
class Fact:
    """One difference: what both have by default, and what this project has."""

    what: str
    flax: str
    torch: str
    here: str


def facts() -> list[Fact]:
    """All of them, as the installed versions have them."""
    return [*_updates(), *_schedules(), *_losses(), *_layers(), *_draws()]


def _default(function: Any, name: str) -> str:
    """`function(name=default)`, or that it has no such argument, or no default for it."""
    parameter = inspect.signature(function).parameters.get(name)
    if parameter is None:
        return f"`{_public(function)}` has none"
    if parameter.default is parameter.empty:
        return f"`{_public(function)}({name})`: must be given"
    value = parameter.default
    shown = f"{value:g}" if isinstance(value, float) else repr(value)
    return f"`{_public(function)}({name}={shown})`"


def _public(function: Any) -> str:
    """The name under which users have it."""
    homes = {
        "torch.nn.functional": "F",
        "torch.nn.": "torch.nn",
        "torch.optim.lr_scheduler": "torch.optim.lr_scheduler",
        "torch.optim.": "torch.optim",
        "flax.": "nn",
        "jax.": "jax.nn",
        "optax.": "optax",
    }
    module = function.__module__
    home = next((home for start, home in homes.items() if module.startswith(start)), module)
    return f"{home}.{function.__name__}"


def _updates() -> Iterator[Fact]:
    yield Fact(
        "decay of AdamW",
        _default(optax.adamw, "weight_decay"),
        _default(torch.optim.AdamW, "weight_decay"),
        "`weight_decay`, 0 unless given",
    )
    yield Fact(
        "what AdamW decays",
        _default(optax.adamw, "mask") + ": every parameter",
        "every parameter of a group",
        "not norms, biases, embeddings, unless `decay_all`",
    )
    yield Fact(
        "decay of Adam",
        _default(optax.adam, "weight_decay"),
        f"`torch.optim.Adam(weight_decay=...)`: {torch_adam_decay()}",
        "decoupled",
    )
    yield Fact(
        "learning rate",
        _default(optax.adamw, "learning_rate"),
        _default(torch.optim.AdamW, "lr"),
        "handed in at each update",
    )
    yield Fact(
        "an epsilon inside the root",
        _default(optax.adamw, "eps_root"),
        _default(torch.optim.AdamW, "eps_root"),
        "none",
    )
    yield Fact(
        "clipping by the global norm n to c",
        f"`optax.clip_by_global_norm`: c / {denominator(clipped_by_optax)}",
        f"`torch.nn.utils.clip_grad_norm_`: c / {denominator(clipped_by_torch)}",
        "c / n",
    )
    yield Fact(
        "gradients of small batches",
        f"{_default(optax.MultiSteps, 'use_grad_mean')}: their mean",
        "`backward()` adds: their sum",
        "the gradient of the whole batch's mean",
    )


def _schedules() -> Iterator[Fact]:
    yield Fact(
        "count of the first update",
        f"schedules are asked for {first_count_of_optax()}",
        f"`torch.optim.lr_scheduler.LambdaLR` is asked for {first_count_of_torch()}",
        "1: a warmup does not begin with a rate of 0",
    )
    yield Fact(
        "where a cosine of 10 ends after a warmup of 4",
        f"`optax.warmup_cosine_decay_schedule(decay_steps=10)`: after {end_of_optax()}",
        f"`SequentialLR` of `LinearLR`, `CosineAnnealingLR(T_max=10)`: after {end_of_torch()}",
        "at the last update of all",
    )
    yield Fact(
        "where a warmup begins",
        _default(optax.linear_schedule, "init_value"),
        _default(lr_scheduler.LinearLR, "start_factor"),
        "at 1 / warmup of the peak",
    )


def _losses() -> Iterator[Fact]:
    ours = optax.softmax_cross_entropy_with_integer_labels
    theirs = torch.nn.functional.cross_entropy
    yield Fact(
        "what a cross-entropy gives",
        f"`{_public(ours)}`: one loss a token",
        _default(theirs, "reduction"),
        "the mean over tokens that count",
    )
    yield Fact(
        "labels that do not count",
        _default(ours, "where"),
        _default(theirs, "ignore_index"),
        "a boolean `label_mask`",
    )


def _layers() -> Iterator[Fact]:
    yield Fact(
        "LayerNorm, epsilon",
        _default(nn.LayerNorm, "epsilon"),
        _default(torch.nn.LayerNorm, "eps"),
        "`LayerNorm(eps=...)` of the config",
    )
    yield Fact(
        "LayerNorm, variance",
        _default(nn.LayerNorm, "use_fast_variance") + ": mean(x^2) - mean(x)^2",
        "in two passes",
        "in two passes",
    )
    yield Fact(
        "RMSNorm, epsilon",
        _default(nn.RMSNorm, "epsilon"),
        _default(torch.nn.RMSNorm, "eps") + ": the machine's",
        "`RMSNorm(eps=...)` of the config",
    )
    gelu = torch.nn.GELU
    yield Fact(
        "GELU",
        _default(jax.nn.gelu, "approximate") + ": by tanh",
        _default(gelu, "approximate") + ": by erf",
        "`gelu` is by erf, `gelu_tanh` by tanh",
    )
    yield Fact(
        "Dropout, probability of a zero",
        _default(nn.Dropout, "rate"),
        _default(torch.nn.Dropout, "p"),
        "rates of the config, 0 unless given",
    )
    yield Fact(
        "dropout of attention weights",
        _default(nn.MultiHeadDotProductAttention, "broadcast_dropout") + ": one draw for all heads",
        "each weight by itself",
        "each weight by itself",
    )
    yield Fact(
        "first axis of attention",
        "batch",
        _default(torch.nn.MultiheadAttention, "batch_first") + ": time",
        "batch",
    )
    yield Fact(
        "kernel from 2 features to 3",
        f"`nn.Dense`: {dense(2, 3)[0].shape}",
        f"`torch.nn.Linear`: {tuple(torch.nn.Linear(2, 3).weight.shape)}",
        "as each framework has it; transposed on the way across",
    )


def _draws() -> Iterator[Fact]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        linear = torch.nn.Linear(WIDTH, WIDTH)
        embedding = torch.nn.Embedding(WIDTH, WIDTH)
    kernel, bias = dense(WIDTH, WIDTH)
    table = nn.Embed(WIDTH, WIDTH).init(jax.random.key(0), jnp.zeros(1, jnp.int32))["params"]
    here = "the scheme of `init`, declared for both"
    yield Fact(
        "fresh weight of a layer from d features, std",
        f"`nn.Dense`: {spread(kernel)}",
        f"`torch.nn.Linear`: {spread(linear.weight)}",
        here,
    )
    yield Fact(
        "its bias, std",
        f"`nn.Dense`: {spread(bias)}",
        f"`torch.nn.Linear`: {spread(linear.bias)}",
        here,
    )
    yield Fact(
        "fresh embedding of d features, std",
        f"`nn.Embed`: {spread(table['embedding'])}",
        f"`torch.nn.Embedding`: {spread(embedding.weight)}",
        here,
    )
