"""The optimizer's update taken apart: clip, moments, epsilon and bias correction, decay, rate.

Each part is judged by itself: at every update the torch side is given the reference's parameters,
moments and clipped gradients, so that what one part does wrong does not show in the next.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import torch

import flax_transformer.training as flax_training
import torch_reference.training as torch_training
from parity.explain.causes import update
from parity.explain.causes.update import Update
from parity.judge.errors import relative_error
from parity.observe.flax_side import compile_fast
from torch_reference.models import build_model
from transformer_spec.config import ModelConfig
from transformer_spec.train_config import TrainConfig
from verification.stages.finding import Finding

Named = Mapping[str, np.ndarray]

UPDATES = 4
RATE = 0.01
# No value is a framework's default, and decay differs from torch's 1e-2.
CLIP_NORM = 0.7
SETTINGS = {
    "beta1": 0.8,
    "beta2": 0.95,
    "eps": 1e-6,
    "weight_decay": 0.1,
    "clip_norm": CLIP_NORM,
    "decay_all": False,
}


def compare_updates(
    model: ModelConfig, train: TrainConfig, tolerance: float = 1e-12
) -> list[Finding]:
    """Where the twins' updates differ, part by part; in float64, from random gradients."""
    config = replace(train, dtype="float64", **SETTINGS)
    twin = build_model(model).double()
    shapes = {name: tuple(p.shape) for name, p in twin.named_parameters()}
    ours = reference_updates(config, tuple(shapes.items()))
    theirs = list(candidate_updates(twin, config, ours))
    found: dict[str, Finding] = {}
    for right, wrong in zip(ours, theirs, strict=True):
        for finding in _parts(right, wrong, tolerance):
            found.setdefault(finding.at, finding)
    return list(found.values())


def gradients(shapes: dict[str, tuple[int, ...]], count: int) -> Named:
    """Gradients whose sizes spread from 1e-8 to 1: near epsilon and far from it."""
    rng = np.random.default_rng([29, count])
    return {n: rng.normal(size=s) * 10 ** rng.uniform(-8, 0, s) for n, s in shapes.items()}


@cache
def reference_updates(config: TrainConfig, shapes: tuple) -> list[Update]:
    """The Flax side's updates, each from where the last one ended."""
    rng = np.random.default_rng(31)
    params = {n: jnp.asarray(rng.normal(size=s)) for n, s in shapes}
    optimizer = flax_training.make_optimizer(config)
    clip = optax.clip_by_global_norm(CLIP_NORM)
    state = optimizer.init(params)

    def step(params: dict, state: tuple, grads: dict) -> tuple:
        direction, new_state = optimizer.update(grads, state, params)
        new = flax_training.apply_updates(params, direction, RATE)
        return new, new_state, clip.update(grads, clip.init(params))[0]

    compiled = compile_fast(step)
    updates = []
    for count in range(1, UPDATES + 1):
        grads = gradients(dict(shapes), count)
        new, new_state, clipped = compiled(params, state, grads)
        before, after = _adam_state(state), _adam_state(new_state)
        moments = (before.mu, before.nu, after.mu, after.nu)
        parts: list[Any] = [params, grads, clipped, *moments, new]
        updates.append(Update(count, *map(_named, parts)))
        params, state = new, new_state
    return updates


def candidate_updates(
    model: torch.nn.Module, config: TrainConfig, given: list[Update]
) -> Iterator[Update]:
    """The torch side's updates, each part from the reference's values."""
    optimizer = torch_training.make_optimizer(model, config)
    parameters = dict(model.named_parameters())
    for right in given:
        _load(parameters, right.before)
        clipped = _clipped(right.grads)
        for name, p in parameters.items():
            p.grad = torch.tensor(right.clipped[name])
            if optimizer.state[p]:
                optimizer.state[p]["exp_avg"].copy_(torch.tensor(right.m0[name]))
                optimizer.state[p]["exp_avg_sq"].copy_(torch.tensor(right.v0[name]))
        torch_training.apply_updates(optimizer, RATE)
        m, v = (
            {n: optimizer.state[p][key].numpy(force=True).copy() for n, p in parameters.items()}
            for key in ("exp_avg", "exp_avg_sq")
        )
        after = {n: p.numpy(force=True).copy() for n, p in parameters.items()}
        yield replace(right, clipped=clipped, m=m, v=v, after=after)


def _clipped(grads: Named) -> Named:
    tensors = [torch.tensor(g) for g in grads.values()]
    norm = torch_training.global_norm(tensors)
    torch_training.clip_by_global_norm(tensors, norm, CLIP_NORM)
    return {name: t.numpy() for name, t in zip(grads, tensors, strict=True)}


@torch.no_grad()
def _load(parameters: dict, values: Named) -> None:
    for name, p in parameters.items():
        p.copy_(torch.tensor(values[name]))


def _parts(right: Update, wrong: Update, tolerance: float) -> Iterator[Finding]:
    error = _largest(right.clipped, wrong.clipped)
    if error > tolerance:
        causes = list(update.different_clip(right, wrong, CLIP_NORM))
        yield Finding("optimizer.clip", "clipped gradients", error, causes)
    moments = max(_largest(right.m, wrong.m), _largest(right.v, wrong.v))
    if moments > tolerance:
        causes = list(update.different_moments(right, wrong))
        yield Finding("optimizer.moments", f"moments of update {right.count}", moments, causes)
    steps = [{n: u.after[n] - u.before[n] for n in u.before} for u in (right, wrong)]
    # The difference of parameters carries the rounding of the parameters, not of the step.
    slack = tolerance * max(_norm(right.before[n]) / _norm(steps[0][n]) for n in steps[0])
    if moments <= tolerance and _largest(*steps) > max(slack, tolerance):
        yield from _update_findings(right, wrong, _largest(*steps))


def _update_findings(right: Update, wrong: Update, error: float) -> Iterator[Finding]:
    found = update.different_update(right, wrong)
    for part, causes in found.items():
        yield Finding(f"optimizer.{part}", f"update {right.count}", error, causes)
    if not found:
        yield Finding("optimizer.update", f"update {right.count}", error)


def _largest(right: Named, wrong: Named) -> float:
    return max(relative_error(wrong[name], right[name]) for name in right)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def _adam_state(state) -> optax.ScaleByAdamState:
    return next(s for s in state if isinstance(s, optax.ScaleByAdamState))


def _named(tree: dict) -> Named:
    return {name: np.asarray(value) for name, value in tree.items()}
