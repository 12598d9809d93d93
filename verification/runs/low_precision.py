"""Whole runs in low precision: how far each framework's run is from the one in float64.

Three runs of a set-up, from the same weights, on the same batches, with the same values dropped:
float64 is the truth, and each framework's run in float32 or bfloat16 is off by so much. That the
two are near each other follows from how near both are to the truth, and says nothing; what is asked
is whether either is off by more than rounding explains. As in `parity.judge.precision`, each error
may be twice the other's plus a floor.

The floor. What a run makes of a rounding is a matter of the run: another one, of chance directions
early on, or of a rate that is high, makes a hundred times as much of it. So it is measured. The
float64 run is repeated with every gradient of every update off by what the walk of roundings may
leave of it norm-wise (three times that of the forward pass, and one for every token): at random,
row by row, for a row is the sum of one unit or one token, and not where it is zero, for what was
dropped or does not occur is exactly so. As far as that run, `disturbed`, is off, each framework may
be.

The loss. In windows of updates, the root mean square of (loss - loss in float64), relative to that
of the loss. The floor is that of the disturbed run, and what roundings make of the loss of one
update without any drift: logits off by the walk of the model's roundings move it by as much times
their `sensitivity`; its own sums, which are wide, add theirs.

The parameters. After some updates, || sqrt(v) (p - p in float64) || over || sqrt(v) (way gone in
float64) ||, over all parameters end to end, with Adam's second moment v in float64 for the square
of what the loss sees of each: one whose gradients are as small as eps or as their own rounding goes
full steps in a direction of chance, and a handful of those would be all that is measured.

Choices. A slope of a ReLU, or an expert, that is another than in float64 is not a rounding but an
event: it hits one framework and spares the other, and neither is at fault. From there on the two
runs differ for that reason (and where a router chooses otherwise, errors grow with its choices).
So both runs in low precision make the choices of the float64 run, every one
(`record_run_with_decisions`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from parity.judge.precision import Roundings, rounding_floor
from torch_reference import training
from verification.low_precision import ErrorPair
from verification.runs.recorded_runs import RunRecord, record_run_with_decisions, seen
from verification.runs.setups import TrainingSetup
from verification.twins import roundings

# A Flax run, a torch run and the disturbed one.
Runs = tuple[RunRecord, RunRecord, RunRecord]


@dataclass(frozen=True)
class Drift:
    """Both frameworks' errors against float64.

    Args:
        losses: one row for every window of updates.
        parameters: one row for every state that was kept.
    """

    losses: list[ErrorPair]
    parameters: list[ErrorPair]

    def beyond_tolerance(self) -> list[ErrorPair]:
        return [row for row in (*self.losses, *self.parameters) if not row.within_tolerance]


def measure_drift(
    truth: RunRecord, ours: RunRecord, theirs: RunRecord, dtype: str, window: int = 100
) -> Drift:
    """The errors of a Flax run and of a torch run in a dtype, given the choices of the truth."""
    runs = (ours, theirs, disturbed(truth, dtype))
    return Drift(
        list(_loss_rows(truth, runs, dtype, window)),
        [_parameter_row(truth, runs, update) for update in truth.states],
    )


def disturbed(truth: RunRecord, dtype: str) -> RunRecord:
    """The float64 run once more, with gradients off by what roundings of a dtype may leave."""
    tokens = int(truth.setup.batch(1).label_mask.sum())
    size = rounding_floor(dtype, _forward(truth.setup) * 3 + Roundings(tokens))
    right, draws = training.gradients, torch.Generator().manual_seed(0)

    def gradients(*arguments: Any, **options: Any) -> Any:
        found, metrics = right(*arguments, **options)
        for grad in found:
            noise = torch.randn(grad.shape, generator=draws, dtype=grad.dtype)
            of_row = grad.norm(dim=-1, keepdim=True) / grad.shape[-1] ** 0.5
            grad.add_(size * of_row * noise * (grad != 0))
        return found, metrics

    with patch.object(training, "gradients", gradients):
        return record_run_with_decisions(truth, "torch", "float64")


def _loss_rows(truth: RunRecord, runs: Runs, dtype: str, window: int) -> Iterator[ErrorPair]:
    floors = _loss_floors(truth, dtype)
    *errors, moved = [run.losses - truth.losses for run in runs]
    errors.append(np.hypot(moved, floors))
    for start in range(0, truth.updates, window):
        span = slice(start, start + window)
        scale = _rms(truth.losses[span])
        flax, torch, allowed = (_rms(x[span]) / scale for x in errors)
        name = f"loss of updates {start + 1} to {min(start + window, truth.updates)}"
        yield ErrorPair(name, flax, torch, allowed)


def _loss_floors(truth: RunRecord, dtype: str) -> np.ndarray:
    setup, batch = truth.setup, truth.setup.batch(1)
    tokens = int(batch.label_mask.sum())
    own = rounding_floor(dtype, roundings.loss(setup.model.vocab_size, tokens)) * truth.losses
    return np.hypot(rounding_floor(dtype, _forward(setup)) * truth.sensitivity, own)


def _forward(setup: TrainingSetup) -> Roundings:
    keys = max(ids.shape[1] for ids in setup.batch(1).inputs.values())
    return roundings.model(setup.model, keys) + roundings.dropouts(setup.model)


def _parameter_row(truth: RunRecord, runs: Runs, update: int) -> ErrorPair:
    model, state = truth.setup.model, truth.states[update]
    start, end, moment, *others = (
        _flat(seen(model, named))
        for named in (
            *(truth.start, state.params, state.second_moment),
            *(run.states[update].params for run in runs),
        )
    )
    weight = np.sqrt(moment)
    way = np.linalg.norm(weight * (end - start))
    flax, torch, allowed = (float(np.linalg.norm(weight * (x - end)) / way) for x in others)
    return ErrorPair(f"parameters after update {update}", flax, torch, allowed)


def _flat(named: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([named[name].ravel().astype(np.float64) for name in sorted(named)])


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.square(x).mean()))
