"""What is said of a run that goes on other than it was saved."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import torch_reference.training as torch_training
from torch_reference.state import from_named, to_named
from verification.bugs.score import TRAIN
from verification.stages import restart as restarts

TEXTS = {
    restarts.Restart(moments=False, count=0): "both moments are zero",
    restarts.Restart(count=None): "Adam's count starts again",
    restarts.Restart(count=-1): "Adam's count is off by -1",
    restarts.Restart(number=1): "update 4 is left out",
    restarts.Restart(number=-1): "update 3 is made again",
    restarts.Restart(False, None, -1): "update 3 is made again and both moments are zero and "
    "Adam's count starts again",
}


def saved_as(monkeypatch, change):
    monkeypatch.setattr(torch_training, "to_named", lambda state: change(to_named(state)))


def loaded_as(monkeypatch, change):
    def load(named, state):
        restored = from_named(named, state)
        for kept in restored.optimizer.state.values():
            change(kept)
        return restored

    monkeypatch.setattr(torch_training, "from_named", load)


@pytest.mark.parametrize("restart", TEXTS, ids=str)
def test_what_a_restart_does_wrong_is_named(float64, monkeypatch, restart):
    def spoil(kept):
        made = restarts.BEFORE
        kept["step"].fill_(0 if restart.count is None else made + restart.count)
        if not restart.moments:
            kept["exp_avg"].zero_()
            kept["exp_avg_sq"].zero_()

    saved_as(monkeypatch, lambda named: replace(named, step=named.step + restart.number))
    loaded_as(monkeypatch, spoil)
    (found,) = restarts.compare_restarts(TRAIN)
    assert found.at == "resume"
    assert [cause.text for cause in found.causes] == [f"after a restart {TEXTS[restart]}"]


def test_nothing_is_said_of_what_is_right(float64):
    assert list(restarts.compare_restarts(TRAIN)) == []


def test_moments_that_lie_otherwise_in_memory_are_caught(float64, monkeypatch):
    """A fused update pairs them with the wrong weights."""

    def turn(kept):
        moment = kept["exp_avg"]
        if moment.ndim == 2:
            kept["exp_avg"] = torch.tensor(moment.numpy().T.copy()).T

    loaded_as(monkeypatch, turn)
    (found,) = restarts.compare_restarts(TRAIN)
    assert found.causes == []


def test_a_state_that_is_refused_is_told(float64, monkeypatch):
    def spoilt(named):
        return replace(named, params={n: np.full_like(a, np.nan) for n, a in named.params.items()})

    saved_as(monkeypatch, spoilt)
    (found,) = restarts.compare_restarts(TRAIN)
    assert str(found).startswith("resume: what was saved is refused: ")
