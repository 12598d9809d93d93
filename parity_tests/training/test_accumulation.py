"""An update's batch in small batches: the same loss and gradient, in both twins."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from flax_transformer import gradients as flax_gradients
from flax_transformer import training as flax_training
from flax_transformer.models import build_model
from parity.judge.errors import FLOAT64_TOLERANCE, differences
from parity_tests.training.test_training import small
from torch_reference import gradients as torch_gradients
from torch_reference import random
from torch_reference import training as torch_training
from train import build_trainer
from transformer_spec import naming, streams
from transformer_spec.batch import Batch
from transformer_spec.config import MixtureOfExperts
from transformer_spec.fields import ConfigError
from transformer_spec.presets import PRESETS
from verification.twins.hostile import tokens
from verification.twins.small_presets import shrink as small_model

ROWS = 12
EXPERTS = MixtureOfExperts(num_experts=4, top_k=2)


def ragged(batch: Batch, seed: int = 0) -> Batch:
    """Rows that count from no token at all to every one, most of them late in the batch."""
    length = batch.labels.shape[1]
    counts = np.sort(np.random.default_rng(seed).integers(0, length + 1, ROWS))
    mask = np.arange(length) < counts[:, None]
    return batch._replace(label_mask=mask, labels=np.where(mask, batch.labels, -100))


compiled = jax.jit(flax_gradients.gradients, static_argnames=("model", "config"))


def flax_gradient(task, train, batch):
    model, key = build_model(task.model), jax.random.key(0)
    params = flax_training.init_params(model, train.init, streams.seed_key(0), train.dtype)
    grads, metrics = compiled(params, batch, key, jnp.int32(0), model=model, config=train)
    named = {name: np.asarray(grad) for name, grad in naming.to_named(grads).items()}
    return {"loss": np.asarray(metrics["loss"])} | named


def torch_gradient(task, train, batch):
    trainer = torch_training.Trainer(task.model, train)
    state = trainer.state
    grads, metrics = torch_gradients.gradients(
        *(state.model, trainer._on_device(batch), state.dropout_key, state.step),
        forward=trainer.forward,
        config=train,
    )
    names = [name for name, _ in state.model.named_parameters()]
    found = dict(zip(names, (g.numpy(force=True).copy() for g in grads), strict=True))
    return {"loss": metrics["loss"].numpy(force=True)} | found


SIDES = {"flax": flax_gradient, "torch": torch_gradient}


def largest(found, expected) -> float:
    return max(d.error for d in differences(found, expected))


@pytest.mark.parametrize("side", [pytest.param("flax", marks=pytest.mark.slow), "torch"])
@pytest.mark.parametrize("name", [pytest.param("sort", marks=pytest.mark.slow), "char-gpt"])
def test_small_batches_give_the_loss_and_the_gradient_of_their_batch(float64, side, name):
    task, train = small(name, batch_size=ROWS, label_smoothing=0.1)
    batch = ragged(task.train_batch(1))
    counts = [int(part.label_mask.sum()) for part in batch.parts(4)]
    assert len(set(counts)) == 4
    gradient = SIDES[side]
    expected = gradient(task, train, batch)
    found = gradient(task, replace(train, accumulation=4), batch)
    assert largest(found, expected) <= FLOAT64_TOLERANCE


def test_the_mean_of_the_small_batches_means_is_far_off(float64):
    """What is usually taken: on these batches it would be seen at once."""
    task, train = small("char-gpt", batch_size=ROWS, label_smoothing=0.1)
    batch = ragged(task.train_batch(1))
    expected = torch_gradient(task, train, batch)
    parts = [torch_gradient(task, train, part) for part in batch.parts(4)]
    means = {name: np.mean([part[name] for part in parts], axis=0) for name in expected}
    assert largest(means, expected) > 0.1


@pytest.mark.parametrize(
    "trainer",
    [pytest.param(flax_training.Trainer, marks=pytest.mark.slow), torch_training.Trainer],
)
def test_whole_updates_are_those_of_the_batch(float64, trainer):
    """Clipped once, counted once: parameters, moments' work and norms of three updates."""
    task, train = small("char-gpt", batch_size=ROWS, clip_norm=0.3, weight_decay=0.1)
    one, four = (trainer(task.model, replace(train, accumulation=a)) for a in (1, 4))
    start = one.parameters()
    for update in (1, 2, 3):
        batch = ragged(task.train_batch(update), update)
        ours, theirs = four.train(batch, 1e-2), one.train(batch, 1e-2)
        for name in ("loss", "grad_norm"):
            assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-12)
        assert float(theirs["grad_norm"]) > train.clip_norm
        assert int(ours["correct"]) == int(theirs["correct"])
    found, expected = four.parameters(), one.parameters()
    for name, value in expected.items():
        moved = np.linalg.norm(value - start[name])
        assert np.linalg.norm(found[name] - value) <= 1e-11 * moved, name


@pytest.mark.parametrize(
    "ffn",
    [
        pytest.param(None, id="feed-forward", marks=pytest.mark.slow),
        pytest.param(EXPERTS, id="experts", marks=pytest.mark.slow),
    ],
)
def test_twins_agree_with_dropout_in_small_batches(float64, ffn):
    changes = {"ffn": ffn, "router_loss": 0.1} if ffn else {}
    task, train = small("char-modern", dropout=True, batch_size=ROWS, **changes)
    rates = {"embed_dropout": 0.1, "attn_dropout": 0.3, "ffn_hidden_dropout": 0.2}
    twins = build_trainer("both", replace(task.model, **rates), replace(train, accumulation=4))
    for update in (1, 2, 3):
        twins.train(ragged(task.train_batch(update), update), 1e-3)
        found = twins.differences()
        assert max(found["loss_difference"], found["grad_norm_difference"]) <= FLOAT64_TOLERANCE


def test_each_small_batch_drops_under_a_key_of_its_own(float64):
    """Small batch i of update n: fold_in(key, n A + i). One in all: what an update had without."""
    task, train = small("char-gpt", dropout=True, batch_size=ROWS)
    batch = task.train_batch(1)
    for count in (1, 4):
        config = replace(train, accumulation=count)
        trainer = torch_training.Trainer(task.model, config)
        model, key = trainer.state.model, trainer.state.dropout_key
        total = torch.tensor(batch.label_mask.sum())
        moved = trainer._on_device(batch)
        _, metrics = torch_gradients.gradients(
            model, moved, key, 3, forward=trainer.forward, config=config
        )
        by_hand = sum(
            torch_gradients.part_loss(
                *(model, part, total, random.fold_in(key, 3 * count + i)),
                forward=trainer.forward,
                config=config,
            )[0]
            for i, part in enumerate(moved.parts(count))
        )
        assert float(metrics["loss"]) == pytest.approx(float(by_hand.detach()), rel=1e-14)


@pytest.mark.parametrize("side", [pytest.param("flax", marks=pytest.mark.slow), "torch"])
def test_the_balance_of_a_router_is_that_of_each_small_batch(float64, side):
    """Products of means: neither their sum nor that of the whole batch."""
    task, train = small("char-modern", ffn=EXPERTS, batch_size=ROWS)
    batch = task.train_batch(1)
    weighed = replace(train, router_loss=0.1)
    gradient = SIDES[side]

    def balance(rows: Batch, count: int = 1) -> float:
        found = [
            gradient(task, replace(config, accumulation=count), rows)["loss"]
            for config in (weighed, train)
        ]
        return float(found[0] - found[1])

    mean = np.mean([balance(part) for part in batch.parts(4)])
    assert balance(batch, 4) == pytest.approx(mean, rel=1e-10)
    assert abs(balance(batch) / mean - 1) > 1e-4


@pytest.mark.parametrize("side", [pytest.param("flax", marks=pytest.mark.slow), "torch"])
def test_a_parameter_that_the_loss_does_not_see_decays(float64, side):
    """Its gradient is zero in torch too, where none would leave it out of the update."""
    _, train = small("char-gpt", weight_decay=0.1)
    config = small_model(replace(PRESETS["bert-base"].model, pooler=True))
    ids = tokens(config.vocab_size, ROWS, 5)
    batch = Batch({"tokens": ids}, ids[:, ::-1].copy(), ids % 2 == 0)
    module = {"flax": flax_training, "torch": torch_training}[side]
    trainer = module.Trainer(config, replace(train, decay_all=True))
    start = trainer.parameters()["pooler.weight"]
    trainer.train(batch, 0.5)
    end = trainer.parameters()["pooler.weight"]
    np.testing.assert_allclose(end, start * (1 - 0.5 * 0.1), rtol=1e-14)


def test_what_does_not_divide_is_refused():
    task, train = small("char-gpt", batch_size=6)
    with pytest.raises(ConfigError, match="batch_size: 6 .* divisible by accumulation 4"):
        replace(train, accumulation=4)
    with pytest.raises(ConfigError, match="accumulation: 0 .* at least 1"):
        replace(train, accumulation=0)
    with pytest.raises(ValueError, match="batch: 6 rows are not usable; .* divisible by 4"):
        task.train_batch(1).parts(4)
