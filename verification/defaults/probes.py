"""What a signature does not say: small runs of the installed optimizers, schedules and layers."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.optim import lr_scheduler

WIDTH = 400  # of layers whose draws are measured: their spread is known to 1 %


def torch_adam_decay() -> str:
    """One step without a gradient: what is added to it passes through the moments, as a sign."""
    p = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    p.grad = torch.zeros_like(p)
    torch.optim.Adam([p], lr=0.1, weight_decay=0.5).step()
    moved = 2.0 - float(p.detach())
    return "part of the gradient (L2)" if abs(moved - 0.1) < 1e-6 else "decoupled"


def denominator(clipped: Callable[[np.ndarray, float], np.ndarray]) -> str:
    """n, or n and what is added to it: from a gradient of norm 5 that is clipped to 1."""
    extra = 5.0 / float(np.linalg.norm(clipped(np.array([3.0, 4.0]), 1.0))) - 5.0
    return "n" if abs(extra) < 1e-9 else f"(n + {extra:.0e})"


def clipped_by_optax(gradient: np.ndarray, limit: float) -> np.ndarray:
    clip = optax.clip_by_global_norm(limit)
    return np.asarray(clip.update(jnp.asarray(gradient), optax.EmptyState())[0])


def clipped_by_torch(gradient: np.ndarray, limit: float) -> np.ndarray:
    p = torch.nn.Parameter(torch.tensor(gradient))
    p.grad = torch.tensor(gradient)
    torch.nn.utils.clip_grad_norm_([p], limit)
    return p.grad.numpy()


def first_count_of_optax() -> int:
    counts: list[Any] = []
    schedule = optax.scale_by_schedule(lambda count: counts.append(count) or 1.0)
    params = jnp.zeros(1)
    schedule.update(params, schedule.init(params))
    return int(counts[0])


def _scheduler_parts() -> tuple[torch.optim.Optimizer, list[int]]:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), []


def first_count_of_torch() -> int:
    optimizer, counts = _scheduler_parts()
    lr_scheduler.LambdaLR(optimizer, lambda count: counts.append(count) or 1.0)
    return counts[0]


def end_of_optax() -> int:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=4, decay_steps=10)
    return next(count for count in range(5, 30) if np.asarray(schedule(count)) < 1e-6)


def end_of_torch() -> int:
    optimizer, _ = _scheduler_parts()
    warmup = lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=4)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    schedule = lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[4])
    for count in range(1, 30):
        optimizer.step()
        schedule.step()
        if optimizer.param_groups[0]["lr"] < 1e-6:
            return count
    raise ValueError("the cosine does not end")


def dense(width_in: int, width_out: int) -> tuple[Any, Any]:
    fresh = nn.Dense(width_out).init(jax.random.key(0), jnp.zeros((1, width_in)))["params"]
    return fresh["kernel"], fresh["bias"]


def spread(drawn: Any) -> str:
    """The standard deviation, to a tenth: a number, or a number of d**-0.5."""
    array = drawn.numpy(force=True) if isinstance(drawn, torch.Tensor) else np.asarray(drawn)
    std = float(array.std())
    by_width = std * WIDTH**0.5
    return f"{std:.1f}" if std == 0 or std > 0.5 else f"{by_width:.1f} d**-0.5"
