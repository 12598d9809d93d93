"""The suite itself is tested: every seeded bug is caught, located and named; no false alarm."""

from collections import Counter

import pytest
import torch

import torch_reference.attention as torch_attention
from parity.observe.settings import NotComparableError
from parity_tests.processes import ROOT
from verification.bugs import score, scoreboard
from verification.bugs.cases import CASES
from verification.bugs.pending import PENDING_BUGS
from verification.bugs.rules import RULES, accepted
from verification.bugs.seeded import SEEDED_BUGS

LISTED = 115


# The slow tier runs the bugs of these cases; the others' reference runs take too long for CI.
IN_SLOW_TIER = {"decoder", "modern", "encoder_decoder", "rotary"}
# By default the first bug of each component, on the cases whose reference runs are made anyway.
ALWAYS = {
    bug.component: bug.id for bug in reversed(SEEDED_BUGS) if bug.case in ("decoder", "rotary")
}.values()


def slow_marks(case):
    return [pytest.mark.slow] + ([] if case in IN_SLOW_TIER else [pytest.mark.long])


def mark_slow(bug):
    """One process holds a case's reference runs."""
    group = pytest.mark.xdist_group(bug.case)
    marks = [group] if bug.id in ALWAYS else [group, *slow_marks(bug.case)]
    return pytest.param(bug, id=bug.id, marks=marks)


UNREPORTED = {"BLK-03"}


@pytest.mark.parametrize("bug", [mark_slow(bug) for bug in SEEDED_BUGS])
def test_it_is_caught_located_and_named(float64, bug):
    right = dict(vars(torch_attention))
    found = score.score_bug(bug)
    assert found.caught
    assert found.located, found.where
    assert found.named, [str(cause) for cause in found.causes]
    assert vars(torch_attention) == right


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=[
                pytest.mark.xdist_group(case),
                *([] if case == "decoder" else slow_marks(case)),
            ],
        )
        for case in CASES
    ],
)
def test_correct_twins_have_no_differences(float64, case):
    """Model, low precision, loss, update, schedule, dropout, initialization."""
    assert [str(found) for found in score.find_differences(case)] == []


def test_the_list_is_whole_and_each_entry_has_a_source():
    ids = [entry.id for entry in (*SEEDED_BUGS, *PENDING_BUGS)]
    assert len(ids) == len(set(ids)) == LISTED
    for entry in (*SEEDED_BUGS, *PENDING_BUGS):
        assert bool(entry.sources) != (entry.id in UNREPORTED)
        assert all(source.startswith("https://") for source in entry.sources)


def test_the_page_of_bugs_is_up_to_date():
    assert (ROOT / "docs" / "seeded_bugs.md").read_text() == scoreboard.page()


def test_correct_pairs_are_not_accused(float64, request, capsys):
    count = request.config.getoption("--false-alarms")
    said = {}
    for seed, lines in score.false_alarms(count):
        if lines:
            said[seed] = lines
        if (seed + 1) % 100 == 0:
            with capsys.disabled():
                print(f"\n{seed + 1} of {count} correct pairs, {len(said)} accused", flush=True)
    assert not said


def test_a_score_can_be_lost(float64, monkeypatch):
    """When no difference is found, a bug counts as missed: the score is no constant."""
    monkeypatch.setattr(score, "find_differences", lambda case: iter(()))
    found = score.score_bug(SEEDED_BUGS[0])
    assert Counter([found.caught, found.located, found.named]) == {False: 3}


def test_rules_in_use_pass_equal_logits_and_refuse_wrong_ones():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).numpy()
    for rule in RULES:
        assert accepted(rule, logits, logits)
        assert not accepted(rule, logits, logits[..., ::-1] * 9)
        assert not accepted(rule, logits, None)
        assert not accepted(rule, logits, logits * float("nan"))


def test_unknown_and_pending_bugs_are_refused_by_name():
    with pytest.raises(NotComparableError, match="NO-1: no such bug"):
        scoreboard.choose_bugs(["NO-1"])
    with pytest.raises(NotComparableError, match="KV-14 is pending"):
        scoreboard.choose_bugs(["KV-14"])
