"""A torch run that is saved, restored and goes on, beside the same run that was never stopped.

Both are the candidate's, so that whatever else is wrong with it is wrong in both: they are equal to
the last bit, or the restart is at fault.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

import torch_reference.training as torch_training
from parity.explain.causes.evidence import Cause
from transformer_spec.batch import Batch
from transformer_spec.train_config import TrainConfig
from verification.stages.finding import Finding
from verification.twins.hostile import hostile_config, tokens

BEFORE, ROWS, LENGTH = 3, 2, 5
# What is dropped tells which update it was.
MODEL = hostile_config(num_layers=1, ffn_out_dropout=0.1)


@dataclass(frozen=True)
class Restart:
    """What a restart brings back, and where it goes on.

    Args:
        moments: Adam's moments are those that were saved, else zero.
        count: by how much Adam's count is off; None where it starts again at zero.
        number: by how much the number of the update to come is off: of its batch, rate and dropout.
    """

    moments: bool = True
    count: int | None = 0
    number: int = 0

    def __str__(self) -> str:
        of_adam = {0: "", None: "Adam's count starts again"}
        of_run = {
            0: "",
            -1: f"update {BEFORE} is made again",
            1: f"update {BEFORE + 1} is left out",
        }
        parts = (
            of_run[self.number],
            "" if self.moments else "both moments are zero",
            of_adam.get(self.count, f"Adam's count is off by {self.count}"),
        )
        return " and ".join(filter(None, parts))


RESTARTS = [Restart(*parts) for parts in product((True, False), (0, None, -1, 1), (0, -1, 1))][1:]


@dataclass(frozen=True)
class Reached:
    """Parameters, and both moments, where the run was stopped."""

    parameters: list[Tensor]
    moments: list[tuple[Tensor, Tensor]]


def compare_restarts(train: TrainConfig) -> Iterator[Finding]:
    """Where the restarted run's next update differs, and why."""
    config = replace(train, dtype="float64", batch_size=ROWS, accumulation=1)
    whole, resumed = (torch_training.Trainer(MODEL, config) for _ in range(2))
    for number in range(1, BEFORE + 1):
        _update(whole, number)
    reached, saved = _reached(whole), whole.named_state()
    try:
        resumed.load_state(saved)
    except ValueError as error:
        yield Finding("resume", f"what was saved is refused: {error}", None)
        return
    _update(resumed, saved.step + 1)
    _update(whole, BEFORE + 1)
    found, right = _parameters(resumed), _parameters(whole)
    if np.array_equal(found, right):
        return
    error = float(np.linalg.norm(found - right) / np.linalg.norm(right))
    yield Finding(
        "resume", "the update after a restart", error, list(_causes(config, reached, found))
    )


def _causes(config: TrainConfig, reached: Reached, found: np.ndarray) -> Iterator[Cause]:
    for restart in RESTARTS:
        if np.array_equal(_restarted(config, reached, restart), found):
            fix = "save and load parameters, both moments and the number of updates made"
            yield Cause(f"after a restart {restart}", fix, 0.0)
            return


def _restarted(config: TrainConfig, reached: Reached, restart: Restart) -> np.ndarray:
    """The parameters after the next update of a run that restarts so."""
    trainer = torch_training.Trainer(MODEL, config)
    state = trainer.state
    state.step = BEFORE + restart.number
    for parameter, value, moments in zip(
        state.model.parameters(), reached.parameters, reached.moments, strict=True
    ):
        parameter.data.copy_(value)
        count = 0 if restart.count is None else BEFORE + restart.count
        first, second = (m.clone() if restart.moments else torch.zeros_like(m) for m in moments)
        state.optimizer.state[parameter] = {
            "step": torch.tensor(float(count)),
            "exp_avg": first,
            "exp_avg_sq": second,
        }
    _update(trainer, state.step + 1)
    return _parameters(trainer)


def _update(trainer: torch_training.Trainer, number: int) -> None:
    """Update 1, 2, ...: each has a batch and a rate of its own."""
    ids = tokens(MODEL.vocab_size, ROWS, LENGTH + 1, seed=number)
    batch = Batch({"tokens": ids[:, :-1]}, ids[:, 1:], np.ones((ROWS, LENGTH), bool))
    trainer.train(batch, 0.01 * number)


def _reached(trainer: torch_training.Trainer) -> Reached:
    parameters = list(trainer.state.model.parameters())
    kept = [trainer.state.optimizer.state[p] for p in parameters]
    moments = [(k["exp_avg"].clone(), k["exp_avg_sq"].clone()) for k in kept]
    return Reached([p.detach().clone() for p in parameters], moments)


def _parameters(trainer: torch_training.Trainer) -> np.ndarray:
    return np.concatenate([array.ravel() for array in trainer.parameters().values()])
