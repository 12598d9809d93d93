"""Mistakes in the learning-rate schedule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from transformer_spec.schedules import InverseSqrt, Schedule, WarmupCosine, learning_rate
from verification.bugs.seeded_bug import SeededBug
from verification.stages.schedule import RATES


@contextmanager
def _rated(wrong: Callable[..., float]) -> Iterator[None]:
    def rate(schedule: Schedule, update: int, accumulation: int, **sizes) -> float:
        return wrong(schedule, update, **sizes)

    with patch.dict(RATES, torch=rate):
        yield


def _per_small_batch(schedule: Schedule, update: int, accumulation: int, **sizes) -> float:
    return learning_rate(schedule, update * accumulation, **sizes)


def _one_ahead(schedule: Schedule, update: int, **sizes) -> float:
    return learning_rate(schedule, update + 1, **sizes)


def _warmup_taken_off(
    schedule: Schedule, update: int, *, peak: float, d_model: int, total_steps: int
) -> float:
    if isinstance(schedule, WarmupCosine):
        warmup = schedule.warmup_steps
        total_steps = max(total_steps - warmup, warmup + 1)
    return learning_rate(schedule, update, peak=peak, d_model=d_model, total_steps=total_steps)


def _first_twice(schedule: Schedule, update: int, **sizes) -> float:
    return learning_rate(schedule, max(1, update - 1), **sizes)


def _scaled_by_warmup(
    schedule: Schedule, update: int, *, peak: float, d_model: int, total_steps: int
) -> float:
    rate = learning_rate(schedule, update, peak=peak, d_model=d_model, total_steps=total_steps)
    if isinstance(schedule, InverseSqrt):
        rate *= (d_model * schedule.warmup_steps) ** 0.5
    return rate


BUGS = (
    SeededBug(
        id="SCH-02",
        name="Counting starts one update late",
        component="schedule",
        sources=("https://github.com/google-deepmind/optax/pull/1744",),
        how="The counter begins at one too many, so the rate of the first update is never used.",
        case="decoder",
        at="optimizer.schedule",
        cause=r"rate of update n is that of update n \+1",
        install=partial(_rated, _one_ahead),
    ),
    SeededBug(
        id="SCH-04",
        name="Warmup left out of the length of the cosine",
        component="schedule",
        sources=(
            "https://github.com/erfanzar/eformer/pull/2",
            "https://github.com/google-deepmind/optax/issues/835",
        ),
        how="total - warmup is passed as the whole length, so the rate ends its fall early.",
        case="decoder",
        at="optimizer.schedule",
        cause="the warmup is taken off the total",
        install=partial(_rated, _warmup_taken_off),
    ),
    SeededBug(
        id="SCH-05",
        name="Schedule advanced by every small batch",
        component="schedule",
        sources=(
            "https://github.com/EvolvingLMMs-Lab/OneVision-Encoder/pull/82",
            "https://github.com/facebookresearch/vilbert-multi-task/issues/20",
        ),
        how="The schedule moves on at every small batch: of four, its curve is four times as fast.",
        case="decoder",
        at="optimizer.schedule",
        cause="of update 4 n: the schedule counts small batches",
        install=partial(patch.dict, RATES, torch=_per_small_batch),
    ),
    SeededBug(
        id="SCH-06",
        name="First rate used twice",
        component="schedule",
        sources=("https://github.com/tugstugi/pytorch-saltnet/issues/7",),
        how="The count from 0 is held at 1 or above: updates 1 and 2 get the same rate.",
        case="decoder",
        at="optimizer.schedule",
        cause="the first rate is used twice",
        install=partial(_rated, _first_twice),
    ),
    SeededBug(
        id="SCH-07",
        name="Inverse root curve scaled by its warmup",
        component="schedule",
        sources=(
            "https://github.com/Kyubyong/transformer/issues/89",
            "https://github.com/espnet/espnet/pull/2088",
            "https://github.com/espnet/espnet/pull/1519",
        ),
        how="The curve is multiplied by warmup**0.5 in place of d_model**-0.5.",
        case="decoder",
        at="optimizer.schedule",
        cause=r"scaled by \S+ = \(d_model \* warmup_steps\)\*\*0.5",
        install=partial(_rated, _scaled_by_warmup),
    ),
)
