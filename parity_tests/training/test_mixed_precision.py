"""Arithmetic in bfloat16 over parameters, moments and updates in float32."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from flax_transformer import gradients as flax_gradients
from flax_transformer import training as flax_training
from flax_transformer.models import apply, build_model
from parity_tests.training.test_training import small
from torch_reference import training as torch_training

TRAINERS = {"flax": flax_training.Trainer, "torch": torch_training.Trainer}


@pytest.fixture(scope="module")
def task_and_train():
    return small("char-gpt", dropout=True, dtype="bfloat16", batch_size=8, accumulation=2)


@pytest.fixture(params=TRAINERS)
def trainer(request, task_and_train):
    task, train = task_and_train
    return TRAINERS[request.param](task.model, train)


def state_arrays(trainer) -> list[np.ndarray]:
    """Parameters and moments."""
    if isinstance(trainer, flax_training.Trainer):
        held = jax.tree.leaves((trainer.state.params, trainer.state.opt_state))
        return [np.asarray(x) for x in held if jnp.issubdtype(x.dtype, jnp.floating)]
    states = trainer.state.optimizer.state.values()
    moments = [s[name] for s in states for name in ("exp_avg", "exp_avg_sq")]
    return [x.numpy(force=True) for x in (*trainer.state.model.parameters(), *moments)]


def test_updates_below_the_resolution_of_bfloat16_are_kept(task_and_train, trainer):
    """Parameters and moments are float32. In bfloat16 hardly one weight in ten would have moved."""
    task, _ = task_and_train
    name = "decoder.final_norm.weight"
    start = trainer.parameters()[name]
    for update in range(1, 11):
        loss = trainer.train(task.train_batch(update), 2**-7 / 100)["loss"]
    arrays = state_arrays(trainer)
    assert len(arrays) == 3 * len(trainer.parameters())
    assert {str(x.dtype).removeprefix("torch.") for x in (loss, *arrays)} == {"float32"}
    end = trainer.parameters()[name]
    assert (start == 1).all()
    assert (end != 1).all()
    assert np.abs(end - 1).max() < 2**-8
    assert (end.astype(ml_dtypes.bfloat16) == 1).mean() > 0.9


def test_arithmetic_is_in_bfloat16(task_and_train):
    """The logits of both twins."""
    task, train = task_and_train
    batch = task.train_batch(1)
    model = build_model(task.model)
    ours = jax.eval_shape(
        lambda params, inputs: apply(model, flax_gradients.in_dtype(params, "bfloat16"), **inputs),
        flax_training.parameter_template(model),
        jax.tree.map(jnp.asarray, batch.inputs),
    )
    twin = torch_training.Trainer(task.model, train)
    with torch.no_grad():
        theirs = twin.forward(**twin._on_device(batch).inputs)
    assert ours.dtype == jnp.bfloat16
    assert theirs.dtype == torch.bfloat16


@pytest.mark.parametrize("side", [pytest.param("flax", marks=pytest.mark.slow), "torch"])
def test_nothing_but_the_rounded_parameters_is_seen(task_and_train, side):
    """Parameters rounded beforehand give the same losses and text, bit for bit."""
    task, train = task_and_train
    batch, prefix = task.train_batch(1), {"tokens": task.held_out[None, : task.length]}

    def measured(trainer) -> list:
        text = trainer.greedy(prefix, 5)
        return [
            *text[0],
            *(float(f["loss"]) for f in (trainer.evaluate(batch), trainer.train(batch, 0.0))),
        ]

    plain, rounded = (TRAINERS[side](task.model, train) for _ in range(2))
    narrow = {n: x.astype(ml_dtypes.bfloat16) for n, x in plain.parameters().items()}
    rounded.load_parameters({n: x.astype(np.float32) for n, x in narrow.items()})
    found = measured(plain)
    assert found == measured(rounded)
    wide = TRAINERS[side](task.model, replace(train, dtype="float32"))
    assert 1e-6 < abs(float(wide.evaluate(batch)["loss"]) / found[-2] - 1) < 2**-6
