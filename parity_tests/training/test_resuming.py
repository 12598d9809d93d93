"""A run that is stopped after any update and resumed equals one that never stopped.

Its state crosses as named arrays: the same from both twins, and strict on the way back.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch

from flax_transformer import training as flax_training
from parity_tests.small_runs import curve, digests, few_rows, newest, run_part, small_task
from torch_reference import training as torch_training
from train import build_trainer
from transformer_spec.parameters import parameter_shapes
from transformer_spec.schedules import InverseSqrt, WarmupCosine
from transformer_spec.state import GROUPS, NamedState

TRAINERS = {"jax": flax_training.Trainer, "torch": torch_training.Trainer}
STEPS, RATE = 6, 0.01
# What is compiled is shared.
pytestmark = pytest.mark.xdist_group("resuming")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    few_rows(monkeypatch)


def trained(trainer, task, steps):
    for update in steps:
        trainer.train(task.train_batch(update), RATE)
    return trainer.named_state()


@pytest.fixture(scope="module")
def twins():
    """Both after three updates in float64: they differ by rounding."""
    rest = {"weight_decay": 0.1, "clip_norm": 1.0, "schedule": WarmupCosine(warmup_steps=2)}
    task, config = small_task("char-gpt", dtype="float64", **rest)
    both = {name: make(task.model, config) for name, make in TRAINERS.items()}
    return task, config, both, {name: trained(t, task, (1, 2, 3)) for name, t in both.items()}


def stop_and_restore(tmp_path, backend, trainer, start, task, config):
    """One run whole, one cut after each of its updates: bit for bit the same.

    Parameters, both moments, all losses, and every field of every record but the times.
    """
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    trainer.load_state(start)
    assert run_part(whole, trainer, task, config, backend=backend) == 0
    trainer.load_state(start)
    for update in range(1, 11):
        resume, stop_after = update > 1, update if update < 10 else None
        given = {"backend": backend, "resume": resume, "stop_after": stop_after}
        assert run_part(cut, trainer, task, config, **given) == 0
        # What is restored must come from the disk.
        trainer.train(task.train_batch(1), 0.3)
    ends = [newest(path, task, config) for path in (whole, cut)]
    assert [end.manifest.step for end in ends] == [10, 10]
    assert digests(whole) == digests(cut)
    assert curve(cut) == curve(whole)
    summary = [10] if task.rows_are_answers else []
    assert [r["step"] for r in curve(cut)] == [1, 3, 5, 6, 9, 10, *summary]
    weights = [(path / "model.safetensors").read_bytes() for path in (whole, cut)]
    assert weights[0] == weights[1]
    assert (cut / "loss.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("backend", TRAINERS)
def test_stopped_and_restored_at_every_single_update(float64, twins, tmp_path, backend):
    task, config, both, _ = twins
    start = flax_training.Trainer(task.model, config).named_state()
    stop_and_restore(tmp_path, backend, both[backend], start, task, config)


def test_stopped_and_restored_in_the_middle_of_a_shuffled_epoch(tmp_path):
    task, config = small_task("sort", schedule=InverseSqrt(warmup_steps=2), learning_rate=0.1)
    trainer = torch_training.Trainer(task.model, config)
    assert task.steps_per_epoch == 4
    stop_and_restore(tmp_path, "torch", trainer, trainer.named_state(), task, config)


def test_both_save_the_same(float64, twins):
    """Names, shapes, dtypes, layout, count and key; values to rounding."""
    task, _, _, states = twins
    ours, theirs = states["jax"], states["torch"]
    assert ours.step == theirs.step == 3
    np.testing.assert_array_equal(ours.dropout_key, theirs.dropout_key)
    assert ours.dropout_key.dtype == theirs.dropout_key.dtype == np.uint32
    for group in GROUPS:
        mine, other = ours.groups()[group], theirs.groups()[group]
        shapes = parameter_shapes(task.model)
        assert mine.keys() == other.keys() == shapes.keys()
        for name, array in mine.items():
            assert array.shape == other[name].shape == shapes[name]
            assert array.dtype == other[name].dtype == np.float64
            np.testing.assert_allclose(array, other[name], rtol=1e-7, atol=1e-12)
            assert array.any()


@pytest.mark.parametrize("backend", TRAINERS)
def test_a_copy_is_not_touched_by_later_updates(float64, twins, backend):
    """Donated buffers, and updates in place."""
    task, _, both, states = twins
    before = states[backend]
    kept = {
        group: {n: a.copy() for n, a in named.items()} for group, named in before.groups().items()
    }
    both[backend].load_state(before)
    trained(both[backend], task, (4,))
    for group, named in before.groups().items():
        for name, array in named.items():
            np.testing.assert_array_equal(array, kept[group][name])


@pytest.mark.parametrize(("first", "then"), [("jax", "torch"), ("torch", "jax")])
def test_begun_in_one_framework_and_ended_in_the_other(float64, twins, first, then):
    """Within 1e-10 of what moved, parameter by parameter, of a run in one framework."""
    task, _, both, states = twins
    both[first].load_state(states[first])
    whole = trained(both[first], task, range(4, STEPS + 1))
    both[then].load_state(states[first])
    crossed = trained(both[then], task, range(4, STEPS + 1))
    assert crossed.step == whole.step == STEPS
    for name, value in whole.params.items():
        moved = np.linalg.norm(value - states[first].params[name])
        assert np.linalg.norm(value - crossed.params[name]) <= 1e-10 * moved, name


@pytest.mark.parametrize("backend", TRAINERS)
def test_what_is_not_the_state_of_this_model_is_refused(float64, twins, backend):
    _, _, both, states = twins
    whole = states[backend]
    name = "lm_head.bias"

    def changed(group: str, array: np.ndarray | None) -> NamedState:
        named = dict(whole.groups()[group])
        named.pop(name)
        return replace(whole, **{group: named | ({} if array is None else {name: array})})

    right = whole.params[name]
    bad = right.copy()
    bad[0] = np.nan
    cases = {
        r"params: .*missing lm_head\.bias": changed("params", None),
        r"first_moment: .*lm_head\.bias has shape": changed("first_moment", right[1:]),
        r"second_moment: lm_head\.bias is float32": changed("second_moment", right.astype("f4")),
        r"first moment of lm_head\.bias is not finite": changed("first_moment", bad),
        "step -1": replace(whole, step=-1),
        "two words": replace(whole, dropout_key=np.zeros(4, np.uint32)),
    }
    for message, state in cases.items():
        with pytest.raises(ValueError, match=message):
            both[backend].load_state(state)


def test_torch_has_moments_of_zero_before_its_first_update():
    task, config = small_task("char-gpt")
    trainer = torch_training.Trainer(task.model, config)
    start = trainer.named_state()
    assert start.step == 0
    assert not any(a.any() for a in (*start.first_moment.values(), *start.second_moment.values()))
    once = trained(trainer, task, (1,))
    trainer.load_state(start)
    again = trained(trainer, task, (1,))
    for group in GROUPS:
        for name, array in once.groups()[group].items():
            np.testing.assert_array_equal(array, again.groups()[group][name])


def test_lockstep_loads_both(float64, twins):
    task, config, _, states = twins
    both = build_trainer("both", task.model, config)
    both.load_state(states["torch"])
    for twin in (both.first, both.second, both):
        found = twin.named_state()
        assert found.step == 3
        for group in GROUPS:
            for name, array in states["torch"].groups()[group].items():
                np.testing.assert_array_equal(found.groups()[group][name], array)


def test_a_restored_state_is_compiled_for_already(twins):
    """Not a type nor a device of it is another: the step is not compiled again."""
    task, _, both, states = twins
    trainer = both["jax"]
    trainer.load_state(states["jax"])
    trained(trainer, task, (4,))
    before = trainer.train_step._cache_size()
    trainer.load_state(states["torch"])
    trained(trainer, task, (4,))
    assert trainer.train_step._cache_size() == before == 1
    assert jax.tree.leaves(trainer.state.params)[0].dtype == np.float64


def test_a_fused_optimizer_finds_its_count_where_it_looks(float64, twins):
    _, _, both, states = twins
    both["torch"].load_state(states["jax"])
    optimizer = both["torch"].state.optimizer
    for parameter, kept in optimizer.state.items():
        assert kept["step"] == 3
        assert kept["step"].dtype == torch.float32
        for moment in (kept["exp_avg"], kept["exp_avg_sq"]):
            assert moment.shape == parameter.shape
            assert moment.stride() == parameter.stride()
