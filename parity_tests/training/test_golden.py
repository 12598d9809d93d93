"""Golden runs: NumPy alone repeats their inputs, both twins their losses."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from parity_tests.processes import run_python
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError
from transformer_spec.parameters import parameter_shapes
from transformer_spec.presets import PRESETS
from verification import golden
from verification.__main__ import main
from verification.golden import comparison

FIRST = 5


# The Flax twin takes long to compile, and takes all 200 updates in the slow tier.
FIRST_RUNS = [("char-gpt", "torch"), ("sort", "torch")]


@pytest.mark.parametrize(("name", "side"), FIRST_RUNS)
def test_the_first_updates_are_the_known_ones(float64, name, side):
    found = comparison.difference(golden.load(name), side, FIRST)
    assert found.of_bound <= 1, found


@pytest.mark.slow
@pytest.mark.parametrize("side", comparison.TRAINERS)
@pytest.mark.parametrize("name", golden.NAMES)
def test_all_updates_are_the_known_ones(float64, compiled_as_users_do, name, side):
    found = comparison.difference(golden.load(name), side)
    assert found.of_bound <= 1, found


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_known_run_is_its_preset_without_dropout(name):
    run, preset = golden.load(name), PRESETS[name]
    dropping = {n for n in vars(run.model) if n.endswith("_dropout")}
    vocab_size = run.model.vocab_size
    expected = replace(preset.model, **dict.fromkeys(dropping, 0.0), vocab_size=vocab_size)
    assert run.model == expected
    kept = {"dtype": "float64", "steps": 200, "epochs": None, "data": run.train.data}
    assert run.train == replace(preset.train, **kept)
    assert len(run.losses) == len(run.grad_norms) == run.updates == 200
    assert run.losses[-1] < 0.8 * run.losses[0], "the loss must move, or nothing is known"
    shapes = {n: a.shape for n, a in run.initial_parameters().items()}
    assert shapes == parameter_shapes(run.model)


@pytest.mark.parametrize("name", golden.NAMES)
def test_bounds_are_of_roundings_and_leave_no_room_for_a_mistake(name):
    bounds = np.array(golden.load(name).bounds)
    assert len(bounds) == 200
    assert (np.diff(bounds) >= 0).all()
    assert (bounds[:100] < 1e-12).all()


@pytest.mark.parametrize("name", golden.NAMES)
def test_moved_parameters_are_neighbours_drawn_from_a_seed(name):
    run = golden.load(name)
    whole, moved, again, other = (
        np.concatenate([a.ravel() for a in named.values()])
        for named in (
            run.initial_parameters(),
            *(run.moved_parameters(seed) for seed in (0, 0, 1)),
        )
    )
    up, down = (np.nextafter(whole, end) for end in (np.inf, -np.inf))
    assert (np.equal(moved, up) | np.equal(moved, down)).all()
    assert np.equal(moved, up).mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(moved, again)
    assert (moved != other).mean() == pytest.approx(0.5, abs=0.02)


def test_gradients_are_clipped_at_some_updates_and_not_at_others():
    run = golden.load("sort")
    clipped = np.array(run.grad_norms) > run.train.clip_norm
    assert 0 < clipped.sum() < len(clipped)


def test_numbers_are_read_as_they_were_measured():
    for name in golden.NAMES:
        data = json.loads((golden.FOLDER / f"{name}.json").read_text())
        run = golden.load(name)
        # Fields that came to the config since then have their defaults.
        data["model"] = ModelConfig.from_dict(data["model"]).to_dict()
        assert json.loads(json.dumps(run.to_dict())) == data
        assert all(len(repr(loss)) >= 16 for loss in run.losses[:3])


def test_no_framework_is_needed():
    found = run_python(
        "import sys; from verification import golden\n"
        "run = golden.load('char-gpt')\n"
        "run.initial_parameters(), run.batch(200), run.learning_rate(200)\n"
        "assert not {'jax', 'flax', 'optax', 'torch'} & set(sys.modules)\n"
        "print(run.losses[0])"
    )
    assert float(found) == golden.load("char-gpt").losses[0]


WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"""
ONES, TENS = WORDS.split()[:20], WORDS.split()[20:]


def in_words(n: int) -> str:
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")
    return f"{ONES[n // 100]} hundred" + (f" and {in_words(n % 100)}" if n % 100 else "")


def test_the_text_is_the_numbers_in_words():
    text = (golden.FOLDER / "numbers.txt").read_text(encoding="utf-8")
    assert text == "".join(f"{in_words(n)}\n" for n in range(1000))


def test_other_numbers_of_numpy_are_told(monkeypatch):
    drawn = golden.GoldenRun.drawn_fingerprints

    def other(self):
        return drawn(self) | {"batches": "0"}

    monkeypatch.setattr(golden.GoldenRun, "drawn_fingerprints", other)
    with pytest.raises(ConfigError, match=r"golden: NumPy \S+ draws other batches for sort than"):
        golden.load("sort")


def test_parameters_come_from_a_stream_of_their_own():
    """Of the seed and the first four bytes of a SHA-1, as the module says."""
    run = golden.load("char-gpt")
    drawn = run.initial_parameters()
    number = int.from_bytes(hashlib.sha1(b"lm_headweight").digest()[:4])
    rng = np.random.default_rng([run.train.seed, number])
    weight = drawn["lm_head.weight"]
    np.testing.assert_array_equal(weight, 32**-0.5 * (2 * rng.random(weight.shape) - 1))


@pytest.fixture
def torch_alone(monkeypatch):
    """The twin that needs no compilation."""
    monkeypatch.setattr(comparison, "TRAINERS", {"torch": comparison.TRAINERS["torch"]})


def test_the_command_compares_and_refuses(float64, torch_alone, capsys):
    assert main(["golden", "char-gpt", "--updates", "2"]) == 0
    assert "char-gpt  torch  largest relative difference of 2 updates" in capsys.readouterr().out
    assert main(["golden", "char-gtp"]) == 2
    assert "no golden run of 'char-gtp'; did you mean char-gpt?" in capsys.readouterr().err
    assert main(["golden", "--updates", "201"]) == 2
    assert "updates: 201 is not usable; it must be in 1..200" in capsys.readouterr().err


def test_a_loss_that_is_off_is_told(float64, torch_alone, monkeypatch, capsys):
    run = golden.load("char-gpt")
    off = replace(run, losses=(run.losses[0] * (1 + 1e-9), *run.losses[1:]))
    monkeypatch.setattr(golden, "load", lambda name: off)
    assert main(["golden", "char-gpt", "--updates", "1"]) == 1
    assert "loss 1.0e-09" in capsys.readouterr().out
