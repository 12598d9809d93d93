"""Every backend is a Trainer: `transformer_training.trainer` states what that is."""

import inspect

import pytest

from flax_transformer.training import Trainer as FlaxTrainer
from parity_tests.small_runs import small_task
from torch_reference.training import Trainer as TorchTrainer
from train import build_trainer
from transformer_training.lockstep import Lockstep
from transformer_training.trainer import Trainer

METHODS = [name for name in vars(Trainer) if not name.startswith("_")]


@pytest.mark.parametrize("trainer", [FlaxTrainer, TorchTrainer, Lockstep])
def test_has_each_method_with_the_parameters_stated(trainer):
    """pyright checks their types too, where train.py returns them as a Trainer."""
    assert len(METHODS) == 9
    for name in METHODS:
        stated, found = (inspect.signature(getattr(cls, name)) for cls in (Trainer, trainer))
        assert list(found.parameters) == list(stated.parameters), name


def test_a_backend_is_built_by_its_name():
    task, config = small_task("char-gpt")
    both = build_trainer("both", task.model, config)
    assert isinstance(both, Lockstep)
    assert isinstance(both, Trainer)
    assert (type(both.first), type(both.second)) == (FlaxTrainer, TorchTrainer)
