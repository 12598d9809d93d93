"""Whole runs in low precision: how far each framework's run is from the one in float64.

Three runs of a set-up, from the same weights, on the same batches, with the same values dropped:
float64 is the truth, and each framework's run in float32 or bfloat16 is off by so much. That the
two are near each other follows from how near both are to the truth, and says nothing; what is asked
is whether either is off by more than rounding explains. As in `parity.precision`, each error may be
twice the other's plus a floor.

The loss. In windows of updates, the root mean square of (loss - loss in float64), relative to that
of the loss. From one update to the next these errors hardly correlate, for every batch meets other
roundings, so that a window of 100 gives the size of each to 7 % and their ratio to 10 %: a factor
of 2 is no chance. The floor is what roundings make of the loss of one update, without any drift:
logits off by the walk of the model's roundings move it by as much times their `sensitivity`; its
own sums, which are wide, add theirs.

The parameters. After some updates, || sqrt(v) (p - p in float64) || over || sqrt(v) (way gone in
float64) ||, over all parameters end to end, with Adam's second moment v in float64 for the square
of what the loss sees of each: one whose gradients are as small as eps or as their own rounding goes
full steps in a direction of chance, and a handful of those would be all that is measured. An update
is off by what its gradient is off by, and each step by itself; the floor is a gradient's: three
times the roundings of the forward pass and one for every token.

Choices. A slope of a ReLU, or an expert, that is another than in float64 is no rounding but an
event: it hits one framework and spares the other, neither is at fault, and from there on the two
are apart for a reason of its own (and where a router turns, errors feed on the choices they turn).
So both runs in low precision make the choices of the float64 run, every one: `record_given`.

One kind of event is left. Adam's first steps go by the sign of a gradient, and the sign of one that
is smaller than its rounding is chance: two frameworks send a weight in opposite directions, and
what grows from that in a run whose early updates weigh (a small attention beside a large residual)
is one draw, whose ratio to another's has no bound. So a run that is out of line is repeated from
four other seeds, and the medians of the five are held to the same rule: chance would have to hit
the same framework three times of five, a mistake hits it every time. `pooled` takes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from parity import roundings
from parity.long_runs import Record, seen
from parity.precision import Roundings, Row, floor
from parity.set_ups import SetUp


@dataclass(frozen=True)
class Drift:
    """Both frameworks' errors against float64.

    Args:
        losses: one row for every window of updates.
        parameters: one row for every state that was kept.
        runs: how many they are the medians of.
    """

    losses: list[Row]
    parameters: list[Row]
    runs: int = 1

    def out_of_line(self) -> list[Row]:
        return [row for row in (*self.losses, *self.parameters) if not row.in_line]


def drift(truth: Record, ours: Record, theirs: Record, dtype: str, window: int = 100) -> Drift:
    """The errors of a Flax run and of a torch run in a dtype, given the choices of the truth."""
    return Drift(
        list(_loss_rows(truth, ours, theirs, dtype, window)),
        [_parameter_row(truth, ours, theirs, dtype, update) for update in truth.states],
    )


def pooled(drifts: Sequence[Drift]) -> Drift:
    """The medians of runs of one set-up from several seeds."""
    losses = [_median(rows) for rows in zip(*(d.losses for d in drifts), strict=True)]
    parameters = [_median(rows) for rows in zip(*(d.parameters for d in drifts), strict=True)]
    return Drift(losses, parameters, len(drifts))


def _median(rows: Sequence[Row]) -> Row:
    values = zip(*((row.flax, row.torch, row.floor) for row in rows), strict=True)
    return Row(rows[0].name, *map(median, values))


def _loss_rows(
    truth: Record, ours: Record, theirs: Record, dtype: str, window: int
) -> Iterator[Row]:
    floors = _loss_floors(truth, dtype)
    errors = [run.losses - truth.losses for run in (ours, theirs)]
    for start in range(0, truth.updates, window):
        span = slice(start, start + window)
        scale = _rms(truth.losses[span])
        flax, torch, allowed = (_rms(x[span]) / scale for x in (*errors, floors))
        name = f"loss of updates {start + 1} to {min(start + window, truth.updates)}"
        yield Row(name, flax, torch, allowed)


def _loss_floors(truth: Record, dtype: str) -> np.ndarray:
    setup, batch = truth.setup, truth.setup.batch(1)
    tokens = int(batch.label_mask.sum())
    own = floor(dtype, roundings.loss(setup.model.vocab_size, tokens)) * truth.losses
    return np.hypot(floor(dtype, _forward(setup)) * truth.sensitivity, own)


def _forward(setup: SetUp) -> Roundings:
    keys = max(ids.shape[1] for ids in setup.batch(1).inputs.values())
    return roundings.model(setup.model, keys) + roundings.dropouts(setup.model)


def _parameter_row(truth: Record, ours: Record, theirs: Record, dtype: str, update: int) -> Row:
    model, tokens = truth.setup.model, int(truth.setup.batch(1).label_mask.sum())
    state = truth.states[update]
    start, end, moment, *runs = (
        _flat(seen(model, named))
        for named in (
            *(truth.start, state.params, state.second_moment),
            *(run.states[update].params for run in (ours, theirs)),
        )
    )
    weight = np.sqrt(moment)
    way = np.linalg.norm(weight * (end - start))
    flax, torch = (float(np.linalg.norm(weight * (run - end)) / way) for run in runs)
    gradient = _forward(truth.setup) * 3 + Roundings(tokens)
    return Row(f"parameters after update {update}", flax, torch, floor(dtype, gradient))


def _flat(named: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([named[name].ravel().astype(np.float64) for name in sorted(named)])


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.square(x).mean()))
