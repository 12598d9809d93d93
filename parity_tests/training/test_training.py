"""Whole updates: 100 in float64 twin to twin with dropout on, donated buffers, evaluation."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from flax_transformer import training as flax_training
from parity.judge.errors import difference
from torch_reference import training as torch_training
from train import build_trainer
from transformer_spec.config import MixtureOfExperts, StdLayerNorm
from transformer_spec.presets import PRESETS
from transformer_spec.schedules import InverseSqrt, learning_rate
from transformer_training.checkpoints import load_arrays, save_arrays
from transformer_training.tasks import make_task
from verification.twins.small_presets import without_dropout

STEPS = 100
TOLERANCE = 1e-10


def small(name: str, ffn=None, dropout: bool = False, **train_changes):
    """A preset's task and training set-up around a model that a test can afford."""
    preset = PRESETS[name]
    sizes = {"d_model": 24, "d_ff": 29, "num_layers": 1, "num_heads": 4}
    if preset.model.num_decoder_layers:
        sizes["num_decoder_layers"] = 1
    if preset.model.attention_scale:
        sizes["attention_scale"] = 24**-0.5
    sizes |= {"ffn": ffn or preset.model.ffn, "max_seq_len": 16, "num_kv_heads": None}
    model = replace(preset.model, **sizes)
    model = model if dropout else without_dropout(model)
    train = replace(preset.train, **({"dtype": "float64", "batch_size": 7} | train_changes))
    task = make_task(model, train)
    return task, train


RUNS = {
    "sort": ("sort", {}),
    "char-gpt": ("char-gpt", {}),
    "char-modern": ("char-modern", {}),
    "experts and their balance": (
        "char-modern",
        {"ffn": MixtureOfExperts(num_experts=4, top_k=2), "router_loss": 0.1},
    ),
    "smoothing, decay, the paper's schedule": (
        "sort",
        {
            "label_smoothing": 0.1,
            "weight_decay": 0.1,
            "schedule": InverseSqrt(warmup_steps=20),
            "eps": 1e-9,
            "learning_rate": 0.3,
            "clip_norm": 0.3,
        },
    ),
}


# The rest of an update, smoothing, decay and schedule, has its short runs in test_long_runs.
RUNS_IN_CI = tuple(name for name in RUNS if name != "experts and their balance")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in RUNS_IN_CI else ()) for n in RUNS],
)
def test_a_hundred_updates_agree(float64, compiled_as_users_do, name):
    """Loss and gradient norm at every update, and all parameters at the end, dropout on.

    Nothing is left out: none of these presets has a key bias, whose zero gradient Adam would turn
    into full-size steps of rounding noise.
    """
    preset, changes = RUNS[name]
    task, train = small(preset, dropout=True, **changes)
    twins = build_trainer("both", task.model, train)
    losses = []
    start = twins.parameters()
    for update in range(1, STEPS + 1):
        rate = learning_rate(
            train.schedule,
            update,
            peak=train.learning_rate,
            d_model=task.model.d_model,
            total_steps=STEPS,
        )
        losses.append(float(twins.train(task.train_batch(update), rate)["loss"]))
        found = twins.differences()
        assert found["loss_difference"] <= TOLERANCE, (update, found)
        assert found["grad_norm_difference"] <= TOLERANCE, (update, found)
    assert losses[-1] < 0.9 * losses[0], "the loss must move, or nothing was compared"
    ours, theirs = twins.first.parameters(), twins.second.parameters()
    for parameter, value in ours.items():
        moved = np.linalg.norm(value - start[parameter])
        apart = np.linalg.norm(value - theirs[parameter])
        assert apart <= TOLERANCE * moved, (parameter, apart, moved)


def test_evaluation_agrees_and_has_no_dropout(float64):
    task, train = small("sort")
    dropping = replace(task.model, attn_dropout=0.5, embed_dropout=0.5, ffn_hidden_dropout=0.5)
    twins = build_trainer("both", dropping, train)
    plain = build_trainer("both", task.model, train)
    plain.first.load_parameters(twins.parameters())
    batch = next(iter(task.eval_batches()))
    expected = plain.first.evaluate(batch)
    for trainer in (twins.first, twins.second):
        for _ in range(2):
            found = trainer.evaluate(batch)
            assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-12)
            assert int(found["correct"]) == int(expected["correct"])


@pytest.mark.slow
@pytest.mark.parametrize("trainer", [flax_training.Trainer, torch_training.Trainer])
def test_dropout_is_on_in_training_and_new_at_each_update(trainer):
    task, train = small("sort")
    dropping = trainer(replace(task.model, embed_dropout=0.5), replace(train, dtype="float32"))
    batch = task.train_batch(1)
    frozen = dropping.parameters()
    losses = set()
    for _ in range(3):
        losses.add(float(dropping.train(batch, 0.0)["loss"]))
    assert len(losses) == 3
    for name, value in dropping.parameters().items():
        np.testing.assert_array_equal(value, frozen[name])


@pytest.mark.parametrize("trainer", [flax_training.Trainer, torch_training.Trainer])
def test_the_same_seed_gives_the_same_run(trainer):
    task, train = small("char-gpt")
    runs = []
    for _ in range(2):
        one = trainer(replace(task.model, attn_dropout=0.3), replace(train, dtype="float32"))
        runs.append([float(one.train(task.train_batch(n), 1e-3)["loss"]) for n in (1, 2, 3)])
    assert runs[0] == runs[1]


def test_the_buffers_of_the_old_state_are_donated():
    task, train = small("sort")
    trainer = flax_training.Trainer(task.model, replace(train, dtype="float32"))
    old = trainer.state
    trainer.train(task.train_batch(1), 1e-3)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((old.params, old.opt_state)))


@pytest.mark.slow
def test_a_batch_padded_with_rows_equals_the_rows_alone(float64):
    """The last batch of an epoch is filled up; what it measures is that of its rows."""
    task, train = small("sort")
    last = task.train_batch(task.steps_per_epoch)
    count = int(last.label_mask.any(axis=1).sum())
    assert 0 < count < train.batch_size
    rows = type(last)(
        {name: ids[:count] for name, ids in last.inputs.items()},
        last.labels[:count],
        last.label_mask[:count],
    )
    assert last.num_tokens() == rows.num_tokens() == count * 17
    for module in (flax_training, torch_training):
        padded, alone = module.Trainer(task.model, train), module.Trainer(task.model, train)
        a, b = padded.train(last, 1e-3), alone.train(rows, 1e-3)
        assert float(a["loss"]) == pytest.approx(float(b["loss"]), rel=1e-12)
        assert float(a["grad_norm"]) == pytest.approx(float(b["grad_norm"]), rel=1e-12)
        assert int(a["correct"]) == int(b["correct"])


def test_weights_written_by_one_backend_are_read_by_the_other(float64, tmp_path):
    task, train = small("sort")
    writer = flax_training.Trainer(task.model, train)
    writer.train(task.train_batch(1), 1e-3)
    save_arrays(tmp_path / "model.safetensors", writer.parameters())
    reader = torch_training.Trainer(task.model, train)
    reader.load_parameters(load_arrays(tmp_path / "model.safetensors"))
    for name, value in writer.parameters().items():
        np.testing.assert_array_equal(reader.parameters()[name], value)
    batch = next(iter(task.eval_batches()))
    ours, theirs = writer.evaluate(batch)["loss"], reader.evaluate(batch)["loss"]
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)


@pytest.mark.parametrize("trainer", [flax_training.Trainer, torch_training.Trainer])
def test_wrong_parameters_are_refused_with_every_fault(trainer):
    task, train = small("sort")
    one = trainer(task.model, train)
    named = one.parameters()
    named["extra.weight"] = named.pop("lm_head.weight")
    named["lm_head.bias"] = named["lm_head.bias"][:-1]
    with pytest.raises(ValueError, match=r"missing lm_head\.weight .*unexpected extra\.weight.*"
                       r"lm_head\.bias has shape"):  # fmt: skip
        one.load_parameters(named)


@pytest.mark.parametrize("scheme", ["xavier_uniform", "torch_default"])
def test_fresh_parameters_have_the_declared_distributions(scheme):
    """Spread of the large matrices, bias and norms of both twins against the formulas."""
    preset = PRESETS["char-gpt"]
    model = replace(preset.model, d_model=128, num_layers=1, norm=StdLayerNorm(), max_seq_len=64)
    train = replace(preset.train, init=scheme)
    for module in (flax_training, torch_training):
        named = module.Trainer(model, train).parameters()
        width = (6 / (128 + 3 * 128)) ** 0.5 if scheme == "xavier_uniform" else 128**-0.5
        weight = named["decoder.layers.0.attn.q_proj.weight"]
        assert np.abs(weight).max() == pytest.approx(width, rel=0.01)
        assert weight.std() == pytest.approx(width / 3**0.5, rel=0.02)
        assert (named["decoder.final_norm.weight"] == 1).all()
        assert (named["decoder.final_norm.bias"] == 0).all()
        bias = named["decoder.layers.0.attn.o_proj.bias"]
        table = named["decoder.embed.weight"]
        if scheme == "xavier_uniform":
            assert (bias == 0).all()
            assert np.abs(table).max() == pytest.approx((6 / sum(table.shape)) ** 0.5, rel=0.01)
        else:
            assert np.abs(bias).max() == pytest.approx(128**-0.5, rel=0.05)
            assert table.std() == pytest.approx(1.0, rel=0.02)


def test_the_first_loss_is_near_that_of_a_guess():
    task, train = small("sort")
    loss = float(flax_training.Trainer(task.model, train).evaluate(task.train_batch(1))["loss"])
    assert difference("loss", np.array(loss), np.array(np.log(15))).error < 0.5
