"""Whole runs from the same weights: what each update gave, and how far two runs differ.

In float64 two runs of a set-up, one of each twin, are the same run: what is compared is every loss
and gradient norm, and at some updates the parameters and both of Adam's moments.

What the loss cannot see is left out of parameters and moments. A key's bias adds the same number to
all scores of a query, which softmax does not see: in exact arithmetic its gradient is zero, and
what Adam makes of the rounding noise in its place is anything up to a full step (with eps 1e-8
beside noise of 1e-18 it is 1e-10 of one). Where queries and keys are rotated, the dimensions that
rotate are seen, for there the same bias is another at every position.

Routers choose: if the logits of two runs differ by at most d, no token goes to other experts as
long as each choice leads by more than 2 d. Both are measured, at every update.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flax_transformer import training as flax_training
from torch_reference import training as torch_training
from transformer_spec.batch import Batch
from transformer_spec.config import MixtureOfExperts, ModelConfig, Rotary, TwoChannelRotary
from transformer_spec.state import NamedState
from verification.runs.decisions import Decisions, recording_decisions, replaying_decisions
from verification.runs.setups import TrainingSetup

Named = Mapping[str, np.ndarray]
SIDES = ("flax", "torch")
TRAINERS = {"flax": flax_training.Trainer, "torch": torch_training.Trainer}
TOLERANCE = 1e-10


@dataclass(frozen=True)
class RunRecord:
    """One run of one side.

    Args:
        start: the parameters before update 1.
        states: what the run had reached after some updates, by their number.
        decided: the choices of each update.
        sensitivity: by how much a rounding of 1 in the logits moves each update's loss.
    """

    setup: TrainingSetup
    start: Named
    losses: np.ndarray
    grad_norms: np.ndarray
    states: dict[int, NamedState]
    decided: list[Decisions]
    sensitivity: np.ndarray

    @property
    def updates(self) -> int:
        return len(self.losses)


def initial_parameters(setup: TrainingSetup) -> dict[str, np.ndarray]:
    """Fresh parameters that float32 holds, so that every dtype starts from the same numbers."""
    train = replace(setup.train, dtype="float32")
    return TRAINERS["torch"](setup.model, train).parameters()


def record_run(
    setup: TrainingSetup, side: str, start: Named, updates: int, marks: Sequence[int], dtype: str
) -> RunRecord:
    """Run a twin, flax or torch, in a dtype, and keep its state after the updates in `marks`."""
    with recording_decisions(side) as recorder:
        trainer = _trainer(setup, side, start, dtype)
        return _recorded(setup, trainer, start, updates, marks, lambda update: recorder.take())


def record_run_with_decisions(truth: RunRecord, side: str, dtype: str) -> RunRecord:
    """The run of another: its start, length and marks, and each of its choices."""
    with replaying_decisions(side) as given:
        trainer = _trainer(truth.setup, side, truth.start, dtype)
        given.give(truth.decided[0])

        def decided(update: int) -> Decisions:
            if update < truth.updates:
                given.give(truth.decided[update])
            return truth.decided[update - 1]

        marks = list(truth.states)
        return _recorded(truth.setup, trainer, truth.start, truth.updates, marks, decided)


def _trainer(setup: TrainingSetup, side: str, start: Named, dtype: str) -> Any:
    trainer = TRAINERS[side](setup.model, replace(setup.train, dtype=dtype))
    trainer.load_parameters(dict(start))
    return trainer


def _recorded(
    setup: TrainingSetup,
    trainer: Any,
    start: Named,
    updates: int,
    marks: Sequence[int],
    decided: Callable[[int], Decisions],
) -> RunRecord:
    """Every update; `decided` is asked after each what it decided."""
    losses, norms, moves, states, choices = [], [], [], {}, []
    for update in range(1, updates + 1):
        batch = setup.batch(update)
        metrics = trainer.train(batch, setup.learning_rate(update))
        losses.append(float(metrics["loss"]))
        norms.append(float(metrics["grad_norm"]))
        if update in marks:
            states[update] = trainer.named_state()
        found = decided(update)
        moves.append(sensitivity(found.logits, batch, setup.train.label_smoothing))
        choices.append(found)
    figures = np.array(losses), np.array(norms), states, choices, np.array(moves)
    return RunRecord(setup, start, *figures)


def sensitivity(logits: np.ndarray, batch: Batch, smoothing: float) -> float:
    """The deviation of the mean loss L where each logit z is off by its token's rms, at random.

    sqrt(sum over tokens of mean_v(z_v^2) sum_v (dL/dz_v)^2): errors of a chain of roundings are
    norm-wise small beside a token's logits, and those of two tokens are independent.
    """
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    target = np.full(wide.shape, smoothing / wide.shape[-1])
    labels = np.where(batch.label_mask, batch.labels, 0)[..., None]
    np.put_along_axis(target, labels, target[..., :1] + 1 - smoothing, axis=-1)
    slopes = (powers / powers.sum(-1, keepdims=True) - target) / batch.label_mask.sum()
    each = np.square(wide).mean(-1) * np.square(slopes).sum(-1)
    return float(np.sqrt(each[batch.label_mask].sum()))


def unseen(model: ModelConfig, name: str) -> slice | None:
    """The dimensions of each head that the loss does not see in a parameter, if there are any."""
    if not name.endswith("k_proj.bias"):
        return None
    if isinstance(model.position, TwoChannelRotary):
        return slice(model.head_size, None)
    rotated = model.rotary_size if isinstance(model.position, Rotary) else 0
    return slice(0 if "cross_attn" in name else rotated, None)


def seen(model: ModelConfig, named: Named) -> dict[str, np.ndarray]:
    """Named arrays without what the loss does not see; without a parameter it sees nothing of."""
    found = {}
    for name, array in named.items():
        hidden = unseen(model, name)
        if hidden is None:
            found[name] = array
        elif hidden.start:
            found[name] = array.reshape(-1, model.head_size)[:, : hidden.start]
    return found


@dataclass(frozen=True)
class Agreement:
    """How far two runs differ.

    Args:
        loss, grad_norm: the largest relative difference of any update.
        moved: the largest norm-wise difference of a parameter, of the way it went.
        first_moment, second_moment: the same of Adam's moments, of their own norms.
        clipped: at how many updates gradients were clipped.
        losses: the mean of the first and of the last tenth.
        left_out: the parameters of which something is left out.
        lead: the closest choice of a router, in units of what could turn it; above 1 none can be.
        changed_choices: choices that differ.
    """

    loss: float
    grad_norm: float
    moved: float
    first_moment: float
    second_moment: float
    clipped: int
    updates: int
    losses: tuple[float, float]
    left_out: tuple[str, ...]
    lead: float | None
    changed_choices: int

    @property
    def worst(self) -> float:
        """NaN where one of them is."""
        kinds = (self.loss, self.grad_norm, self.moved, self.first_moment, self.second_moment)
        return float(np.max(kinds))


def compare_runs(ours: RunRecord, theirs: RunRecord) -> Agreement:
    """How far a run is from another of the same set-up."""
    model, clip = theirs.setup.model, theirs.setup.train.clip_norm or np.inf
    differences = [_state_differences(model, ours.states[n], theirs, n) for n in theirs.states]
    tenth = max(theirs.updates // 10, 1)
    pairs = list(zip(ours.decided, theirs.decided, strict=True))
    return Agreement(
        loss=_largest(ours.losses, theirs.losses),
        grad_norm=_largest(ours.grad_norms, theirs.grad_norms),
        **{group: float(np.max([a[group] for a in differences])) for group in differences[0]},
        clipped=int((theirs.grad_norms > clip).sum()),
        updates=theirs.updates,
        losses=(float(theirs.losses[:tenth].mean()), float(theirs.losses[-tenth:].mean())),
        left_out=tuple(name for name in theirs.start if unseen(model, name) is not None),
        lead=_lead(model, pairs),
        changed_choices=sum(a.count_differences(b) for a, b in pairs),
    )


def _largest(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float((np.abs(ours - theirs) / np.abs(theirs)).max())


def _state_differences(
    model: ModelConfig, ours: NamedState, theirs: RunRecord, update: int
) -> dict[str, float]:
    state = theirs.states[update]
    start = seen(model, theirs.start)
    ways = {name: end - start[name] for name, end in seen(model, state.params).items()}
    return {
        "moved": _worst(seen(model, ours.params), seen(model, state.params), ways),
        "first_moment": _worst(seen(model, ours.first_moment), seen(model, state.first_moment)),
        "second_moment": _worst(seen(model, ours.second_moment), seen(model, state.second_moment)),
    }


def _worst(ours: Named, theirs: Named, scales: Named | None = None) -> float:
    """The largest distance of two arrays in units of the norm of theirs, or of its scale."""
    scales = theirs if scales is None else scales
    return float(np.max([_distance(ours[n], theirs[n], scales[n]) for n in theirs]))


def _distance(ours: np.ndarray, theirs: np.ndarray, scale: np.ndarray) -> float:
    distance = float(np.linalg.norm(ours - theirs))
    return distance and distance / float(np.linalg.norm(scale))


def _lead(model: ModelConfig, pairs: list[tuple[Decisions, Decisions]]) -> float | None:
    if not isinstance(model.ffn, MixtureOfExperts):
        return None
    top_k = model.ffn.top_k
    return min(b.lead(top_k) / (2 * max(a.distance(b), np.finfo(float).tiny)) for a, b in pairs)
