"""A NaN or an infinity stops a run, and its origin is named."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.attention as flax_attention
import torch_reference.attention as torch_attention
import train
from flax_transformer import training as flax_training
from parity_tests.small_runs import few_rows, newest, run_part, small_task
from torch_reference import training as torch_training
from transformer_training.runs import meter

TRAINERS = {"jax": flax_training.Trainer, "torch": torch_training.Trainer}
ATTENTION = {"jax": flax_attention, "torch": torch_attention}
# jax walks its forward pass operation by operation, each of which it compiles.
BACKENDS = [pytest.param("jax", marks=pytest.mark.slow), "torch"]
SECOND = "decoder.layers.1.attn"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    few_rows(monkeypatch)


def one(backend: str, **changes):
    task, config = small_task("char-gpt", num_layers=2, **changes)
    return task, config, TRAINERS[backend](task.model, config)


def with_value(trainer, name: str, value: float) -> None:
    named = trainer.parameters()
    named[name].flat[0] = value
    trainer.load_parameters(named)


def spoiled(backend: str, monkeypatch, spoil) -> None:
    """The second of each two calls of softmax goes through `spoil`."""
    right, calls = ATTENTION[backend].masked_softmax, []

    def wrong(scores, mask):
        calls.append(0)
        weights = right(scores, mask)
        return weights if len(calls) % 2 else spoil(weights)

    monkeypatch.setattr(ATTENTION[backend], "masked_softmax", wrong)


def sqrt(array):
    return torch.sqrt(array) if isinstance(array, torch.Tensor) else jnp.sqrt(array)


@pytest.mark.parametrize("backend", BACKENDS)
class TestOrigin:
    def test_nothing_is_said_of_a_good_update_and_nothing_changes(self, backend):
        task, _, trainer = one(backend, accumulation=3)
        before = trainer.named_state()
        assert trainer.first_bad(task.train_batch(1)) == (None, None)
        after = trainer.named_state()
        assert after.step == before.step
        for name, array in before.params.items():
            np.testing.assert_array_equal(array, after.params[name])

    def test_a_parameter(self, backend):
        task, _, trainer = one(backend)
        with_value(trainer, "decoder.layers.1.ffn.up_proj.bias", np.inf)
        found, gradient = trainer.first_bad(task.train_batch(1))
        assert found == "output of decoder.layers.1.ffn.up_proj"
        assert gradient is not None
        assert trainer.named_state().not_finite() == ["decoder.layers.1.ffn.up_proj.bias"]

    def test_a_value_inside_one_module(self, backend, monkeypatch):
        spoiled(backend, monkeypatch, lambda weights: weights * float("nan"))
        task, _, trainer = one(backend)
        found, gradient = trainer.first_bad(task.train_batch(1))
        assert (found, gradient) == (f"weights of {SECOND}", "decoder.embed.weight")

    def test_a_gradient_alone(self, backend, monkeypatch):
        spoiled(backend, monkeypatch, lambda weights: weights + sqrt(0 * weights))
        task, _, trainer = one(backend)
        assert trainer.first_bad(task.train_batch(1)) == (None, "decoder.embed.weight")

    def test_the_loss_alone(self, backend):
        task, _, trainer = one(backend)
        named = trainer.parameters()
        named["lm_head.bias"][:] = np.float32(-3e38)
        named["lm_head.bias"][0] = np.float32(3e38)
        trainer.load_parameters(named)
        assert trainer.first_bad(task.train_batch(1))[0] == "the loss"


def stopped(capsys) -> str:
    """The last line of a run."""
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("stopped: ")
    return line


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rate_that_explodes(tmp_path, capsys, backend):
    """Met late, at update 3; gone back to, and what was saved last is whole."""
    task, config, trainer = one(backend, learning_rate=1e30, clip_norm=None)
    assert run_part(tmp_path, trainer, task, config, backend=backend) == 1
    line = stopped(capsys)
    assert "loss is nan at update 2: first bad value: output of decoder.layers.0." in line
    assert "first bad gradient: decoder.embed.weight" in line
    assert newest(tmp_path, task, config).manifest.step == 0
    assert not (tmp_path / "model.safetensors").exists()


def rate_at(monkeypatch, update: int, rate: float) -> None:
    """One update of another rate."""
    right = train.Run.learning_rate
    monkeypatch.setattr(
        train.Run, "learning_rate", lambda run, n: rate if n == update else right(run, n)
    )


def test_parameters_that_an_update_spoils_are_not_saved(tmp_path, capsys, monkeypatch):
    """All values and gradients of update 5 are finite; what it makes is not."""
    rate_at(monkeypatch, 5, 1e39)
    task, config, trainer = one("torch", save_every=1, eval_every=100)
    assert run_part(tmp_path, trainer, task, config, backend="torch") == 1
    line = stopped(capsys)
    assert "decoder.embed.weight is not finite after update 5: all values and gradients" in line
    assert "the step at rate 1e+39 is not" in line
    assert "step-00000004" in line
    assert newest(tmp_path, task, config).manifest.step == 4


def test_parameters_that_were_bad_before_the_update_are_named(tmp_path, capsys, monkeypatch):
    rate_at(monkeypatch, 5, 1e39)
    task, config, trainer = one("torch", save_every=2, log_every=1, eval_every=100)
    assert run_part(tmp_path, trainer, task, config, backend="torch") == 1
    line = stopped(capsys)
    assert "loss is nan at update 6: bad before it: decoder.embed.weight; " in line
    assert "first bad value: output of decoder.embed" in line
    assert newest(tmp_path, task, config).manifest.step == 4


def test_an_evaluation_that_is_not_finite(tmp_path, capsys, monkeypatch):
    """Only the evaluation is bad, and the message says so."""
    right = meter.evaluate
    monkeypatch.setattr(train, "evaluate", lambda *a: right(*a) | {"eval_loss": float("inf")})
    task, config, trainer = one("torch")
    assert run_part(tmp_path, trainer, task, config, backend="torch") == 1
    line = stopped(capsys)
    assert (
        "eval_loss is inf after update 5: it did not happen again when the updates since 0 were"
        in line
    )


def test_without_a_checkpoint_to_repeat_from_the_message_says_so(tmp_path, capsys, monkeypatch):
    rate_at(monkeypatch, 2, 1e39)
    task, config, trainer = one("torch")
    right = train.Run.explain

    def explain(run, error):
        for path in run.directory.checkpoints.rglob("params.safetensors"):
            path.write_bytes(b"damaged")
        return right(run, error)

    monkeypatch.setattr(train.Run, "explain", explain)
    assert run_part(tmp_path, trainer, task, config, backend="torch") == 1
    assert "no checkpoint to repeat from: resume: " in stopped(capsys)
