"""Learning rates as a pure function of the update number, in Python floats.

Both twins are handed the number, so their learning-rate sequences are equal by construction. The
first update is update 1: frameworks that count from 0 (optax's schedules, torch's LambdaLR) give
the same sequence one update later, which makes the first step of a linear warmup a no-op there.
"""

import math
from dataclasses import dataclass

from transformer_spec import fields
from transformer_spec.fields import Variant, check_types, require


@dataclass(frozen=True, kw_only=True)
class Constant(Variant):
    """lr"""


@dataclass(frozen=True, kw_only=True)
class _Warmup(Variant):
    warmup_steps: int

    def __post_init__(self):
        check_types(self)
        require(self.warmup_steps >= 1, "warmup_steps", self.warmup_steps, "at least 1")


@dataclass(frozen=True, kw_only=True)
class WarmupConstant(_Warmup):
    """lr * min(n / warmup, 1)"""


@dataclass(frozen=True, kw_only=True)
class InverseSqrt(_Warmup):
    """lr * d_model**-0.5 * min(n**-0.5, n * warmup**-1.5) (the 2017 paper, equation 3: lr = 1)

    torch's LambdaLR multiplies such a function by the optimizer's own lr: give that lr 1.
    """


@dataclass(frozen=True, kw_only=True)
class WarmupCosine(_Warmup):
    """n / warmup up to lr, then half a cosine down to lr * final_fraction at the last update.

    `optax.warmup_cosine_decay_schedule` counts the warmup inside its `decay_steps`; so does this.
    """

    final_fraction: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        usable = 0 <= self.final_fraction <= 1
        require(usable, "final_fraction", self.final_fraction, "in [0, 1]")


Schedule = Constant | WarmupConstant | InverseSqrt | WarmupCosine


def check_total(schedule: Schedule, total_steps: int) -> None:
    if isinstance(schedule, WarmupCosine):
        usable = schedule.warmup_steps < total_steps
        expected = f"below the number of updates, {total_steps}"
        fields.require(usable, "schedule.warmup_steps", schedule.warmup_steps, expected)


def learning_rate(
    schedule: Schedule, update: int, *, peak: float, d_model: int, total_steps: int
) -> float:
    """The learning rate of update 1, 2, ..., total_steps.

    Args:
        peak: `learning_rate` of the TrainConfig; under InverseSqrt a factor on the paper's curve.
    Raises:
        ValueError: the update is below 1.
    """
    if update < 1:
        raise ValueError(f"update: {update} is not usable; the first update is 1")
    match schedule:
        case Constant():
            return peak
        case WarmupConstant(warmup_steps=warmup):
            return peak * min(update / warmup, 1.0)
        case InverseSqrt(warmup_steps=warmup):
            return peak * d_model**-0.5 * min(update**-0.5, update * warmup**-1.5)
        case WarmupCosine(warmup_steps=warmup, final_fraction=final):
            if update <= warmup:
                return peak * update / warmup
            progress = min((update - warmup) / (total_steps - warmup), 1.0)
            return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))
