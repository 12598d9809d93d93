"""Training equal to the end: whole runs, twin to twin in float64, each against it in the others."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

import torch_reference.attention as torch_attention
import torch_reference.training as torch_training
from parity_tests.toolkit.test_precision import softmax_in_bfloat16
from transformer_spec.published import PUBLISHED
from verification.__main__ import main
from verification.runs.decisions import Decisions
from verification.runs.low_precision import disturbed, measure_drift
from verification.runs.recorded_runs import (
    SIDES,
    TOLERANCE,
    Agreement,
    RunRecord,
    compare_runs,
    initial_parameters,
    record_run,
    record_run_with_decisions,
    seen,
    sensitivity,
    unseen,
)
from verification.runs.setups import FAMILIES, make_setup
from verification.runs.table import lines, measure_runs

UPDATES = 1000
SHORT = 24
# Unless --long-runs asks for all: one run in every dtype, with a router; two in float64 alone.
WHOLE_RUNS = [("mixtral-8x7b", 1)]
FLOAT64_RUNS = [("sort", 1), ("char-gpt", 4)]
EVERY = [(name, count) for name in FAMILIES for count in (1, 4)]


def pytest_generate_tests(metafunc):
    if "whole" in metafunc.fixturenames:
        chosen = EVERY if metafunc.config.getoption("--long-runs") else WHOLE_RUNS
        metafunc.parametrize("whole", chosen, ids=[f"{name}-{count}" for name, count in chosen])


def runs(name: str, accumulation: int, updates: int) -> tuple[RunRecord, RunRecord]:
    setup = make_setup(name, updates, accumulation)
    start, marks = initial_parameters(setup), (1, updates // 2, updates)
    ours, theirs = (record_run(setup, side, start, updates, marks, "float64") for side in SIDES)
    return ours, theirs


def check(found, updates: int, fall: float) -> None:
    """Equal; clipped at some updates and not at others; and the loss moved."""
    assert found.worst <= TOLERANCE, found
    assert found.changed_choices == 0
    assert found.lead is None or found.lead > 1
    assert found.updates == updates
    assert 0 < found.clipped < updates, found.clipped
    assert found.losses[1] < fall * found.losses[0], found.losses


@pytest.mark.slow
@pytest.mark.parametrize(("name", "accumulation"), [("char-gpt", 1), ("gpt2", 4)])
def test_a_short_run_is_the_same_run(float64, name, accumulation):
    """Loss and gradient norm of every update, parameters and both moments: the cheap version."""
    ours, theirs = runs(name, accumulation, SHORT)
    check(compare_runs(ours, theirs), SHORT, fall=0.95)
    assert bool(theirs.decided[0].slopes) == (name == "char-gpt"), "its ReLUs must be recorder"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("name", "accumulation"), FLOAT64_RUNS)
def test_a_thousand_updates_are_the_same_run(float64, compiled_as_users_do, name, accumulation):
    ours, theirs = runs(name, accumulation, UPDATES)
    check(compare_runs(ours, theirs), UPDATES, fall=0.6)


@pytest.mark.slow
@pytest.mark.long
def test_a_thousand_updates_in_every_dtype(float64, compiled_as_users_do, whole, capsys):
    """float32 and bfloat16 are off from float64 by what rounding explains, in both frameworks."""
    entry = measure_runs(*whole, UPDATES)
    with capsys.disabled():
        print("", *lines(entry), sep="\n")
    check(entry.agreement, UPDATES, fall=0.95)
    assert not any(found.beyond_tolerance() for found in entry.drifts.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_trains_alike_at_first(float64, name):
    ours, theirs = runs(name, 1, 3)
    assert compare_runs(ours, theirs).worst <= TOLERANCE


def test_every_family_is_among_the_set_ups():
    """But for those that differ in constants or in size alone."""
    assert {"gpt2", "bert-base", "t5-small", "llama-7b", "mixtral-8x7b"} <= set(FAMILIES)
    left = set(PUBLISHED) - set(FAMILIES)
    assert left == {"llama-2-7b-16k", "llama-2-7b-64k", "llama-3-8b", "llama-3.1-8b", "glm-4-9b"}


@pytest.mark.parametrize("name", FAMILIES)
def test_batches_have_small_batches_of_different_sizes(name):
    """All but those of sorting; else the mean of small batches' means would be no mistake."""
    setup = make_setup(name, 10, 4)
    batch = setup.batch(3)
    counts = {int(part.label_mask.sum()) for part in batch.parts(4)}
    assert len(counts) > 1 or setup.model.arch == "encoder_decoder"
    for key in ("embed", "attn", "attn_out", "ffn_hidden", "ffn_out"):
        assert getattr(setup.model, f"{key}_dropout") > 0


class TestWhatTheLossSees:
    """A key's bias adds the same to all scores of a query, unless it is turned."""

    @pytest.mark.parametrize("name", ["gpt2", "chatglm2-6b", "chatglm-6b"])
    def test_its_gradient_is_rounding_where_it_is_not_seen(self, float64, name):
        setup = make_setup(name, 10)
        trainer = torch_training.Trainer(setup.model, setup.train)
        trainer.load_parameters(initial_parameters(setup))
        trainer.train(setup.batch(1), 0.0)
        key = "decoder.layers.0.attn.k_proj.bias"
        named = dict(trainer.state.model.named_parameters())
        gradient, weight = (
            named[n].grad.numpy(force=True) for n in (key, key.replace("bias", "weight"))
        )
        by_head = np.abs(gradient.reshape(-1, setup.model.head_size))
        hidden = unseen(setup.model, key)
        noise = 1e-14 * np.linalg.norm(weight)
        assert (by_head[:, hidden] < noise).all()
        assert (by_head[:, : hidden.start] > noise).all()

    def test_it_is_left_out_of_what_is_compared(self):
        whole, rotated = (make_setup(name, 10).model for name in ("gpt2", "chatglm2-6b"))
        bias = np.arange(16.0)
        named = {"decoder.layers.0.attn.k_proj.bias": bias, "x.bias": bias}
        assert set(seen(whole, named)) == {"x.bias"}
        kept = seen(rotated, named)["decoder.layers.0.attn.k_proj.bias"]
        np.testing.assert_array_equal(kept, bias.reshape(-1, 8)[:, :4])


def test_a_rounding_in_the_logits_moves_the_loss_by_its_sensitivity():
    """Against 2,000 draws of such roundings."""
    rng = np.random.default_rng(0)
    batch = make_setup("chatglm-6b", 10).batch(1)
    logits = 3 * rng.normal(size=(*batch.labels.shape, 22))

    def loss(z):
        log_probs = z - np.log(np.exp(z).sum(-1, keepdims=True))
        target = np.take_along_axis(log_probs, batch.labels[..., None], -1)[..., 0]
        return (-(0.9 * target + 0.1 * log_probs.mean(-1)))[batch.label_mask].mean()

    size = 1e-3 * np.sqrt(np.square(logits).mean(-1, keepdims=True))
    moves = [loss(logits + size * rng.normal(size=logits.shape)) for _ in range(2000)]
    expected = 1e-3 * sensitivity(logits, batch, 0.1)
    assert np.std(moves) == pytest.approx(expected, rel=0.05)


class TestChoices:
    """DecisionRecorder in one run, given to another."""

    def test_a_choice_is_clear_if_it_leads_by_more_than_both_are_apart(self):
        chosen = np.array([[True, False, False]])
        ours = Decisions(np.zeros(0), [np.array([[3.0, 1.0, 0.5]])], [chosen], [])
        theirs = replace(ours, routed=[np.array([[3.0, 1.1, 0.5]])], experts=[~chosen])
        assert ours.lead(1) == 2.0
        assert ours.lead(2) == 0.5
        assert ours.distance(theirs) == pytest.approx(0.1)
        assert ours.count_differences(theirs) == 3

    @pytest.mark.parametrize("side", [pytest.param("flax", marks=pytest.mark.slow), "torch"])
    @pytest.mark.parametrize("name", ["mixtral-8x7b", "char-gpt"])
    def test_a_run_given_its_own_choices_is_itself(self, float64, name, side):
        setup = make_setup(name, 10, 2)
        alone = record_run(setup, side, initial_parameters(setup), 4, (4,), "float64")
        again = record_run_with_decisions(alone, side, "float64")
        np.testing.assert_allclose(again.losses, alone.losses, rtol=1e-13)
        assert compare_runs(again, alone).worst <= TOLERANCE

    def test_other_choices_give_another_run(self, float64):
        setup = make_setup("mixtral-8x7b", 10)
        alone = record_run(setup, "torch", initial_parameters(setup), 4, (4,), "float64")
        other = [
            replace(d, experts=[np.roll(chosen, 1, axis=-1) for chosen in d.experts])
            for d in alone.decided
        ]
        given = record_run_with_decisions(replace(alone, decided=other), "torch", "float64")
        assert abs(given.losses[0] / alone.losses[0] - 1) > 1e-6


def test_a_loss_that_is_not_finite_is_no_agreement():
    found = Agreement(*[0.0] * 5, 1, 2, (2.0, 1.0), (), None, 0)
    assert found.worst == 0
    assert np.isnan(replace(found, second_moment=np.nan).worst)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("gtp2", "preset: no 'gtp2'; did you mean gpt2?"),
        ("gpt2 --updates 3", "updates: 3 is not usable; it must be at least 4"),
        ("gpt2 --accumulation 3", "batch_size: 8 is not usable; it must be divisible by"),
    ],
)
def test_the_command_refuses_what_it_cannot_run(float64, capsys, arguments, message):
    assert main(["runs", *arguments.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_every_dtype(float64, capsys):
    assert main(["runs", "gpt2", "--updates", "12", "--accumulation", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "gpt2, 2 to an update: WITHIN TOLERANCE"
    assert [line.split()[0] for line in shown[1:]] == (
        ["float64", "loss", "float32", "parameters", "bfloat16", "parameters"]
    )
    assert main(["runs", "gpt2", "--updates", "12", "--accumulation", "2", "--json"]) == 0
    assert '"first_moment"' in capsys.readouterr().out


def rounded_updates(optimizer, learning_rate, apply_updates=torch_training.apply_updates):
    """Parameters as bfloat16 would keep them."""
    apply_updates(optimizer, learning_rate)
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.copy_(parameter.bfloat16())


@pytest.mark.slow
class TestFaults:
    """What does not belong into low precision is out of line within a short run."""

    UPDATES, WINDOW = 60, 20

    @pytest.fixture(scope="class")
    @classmethod
    def truth(cls, float64):
        setup = make_setup("llama-7b", cls.UPDATES)
        marks = (cls.UPDATES,)
        return record_run(setup, "torch", initial_parameters(setup), cls.UPDATES, marks, "float64")

    @pytest.fixture(scope="class", params=["float32", "bfloat16"])
    @classmethod
    def flax(cls, request, truth):
        return request.param, record_run_with_decisions(truth, "flax", request.param)

    def test_what_is_right_is_within_tolerance(self, truth, flax):
        dtype, ours = flax
        found = measure_drift(
            truth, ours, record_run_with_decisions(truth, "torch", dtype), dtype, self.WINDOW
        )
        assert (len(found.losses), len(found.parameters)) == (3, 1)
        assert not found.beyond_tolerance()

    def test_what_is_wrong_is_not(self, truth, flax):
        """Softmax in bfloat16 within float32; updates that are rounded to bfloat16."""
        dtype, ours = flax
        faults = {
            "float32": patch.object(torch_attention, "masked_softmax", softmax_in_bfloat16),
            "bfloat16": patch.object(torch_training, "apply_updates", rounded_updates),
        }
        with faults[dtype]:
            theirs = record_run_with_decisions(truth, "torch", dtype)
        assert measure_drift(truth, ours, theirs, dtype, self.WINDOW).beyond_tolerance()

    def test_what_is_exactly_zero_is_not_disturbed(self, truth):
        """The embedding of a character that no batch has; all else is off, the same each time."""
        once, again = (disturbed(truth, "bfloat16") for _ in range(2))
        np.testing.assert_array_equal(once.losses, again.losses)
        assert once.losses[0] == truth.losses[0]
        assert 1e-6 < abs(once.losses[-1] / truth.losses[-1] - 1) < 1e-1
        name = "decoder.embed.weight"
        moved = [run.states[self.UPDATES].params[name] for run in (truth, once)]
        unseen = truth.states[self.UPDATES].second_moment[name].max(axis=1) == 0
        assert unseen.any()
        np.testing.assert_array_equal(*(rows[unseen] for rows in moved))
        assert np.not_equal(*(rows[~unseen] for rows in moved)).mean() > 0.9
