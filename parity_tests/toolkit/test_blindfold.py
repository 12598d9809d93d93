"""Twins in disguise, through the users' own function: no names, other layouts, fused kernels."""

import numpy as np
import pytest

from verification.blindfold.disguise import Names
from verification.blindfold.score import false_alarms, score_bug
from verification.bugs.scoreboard import choose_bugs

QUICK = ["NRM-04", "FFN-04"]


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_in_the_model_is_caught_and_placed(float64, name):
    row = score_bug(*choose_bugs([name]), seed=0)
    assert row.caught
    assert row.placed
    assert row.causes


def test_dropout_in_evaluation_is_no_rounding(float64):
    row = score_bug(*choose_bugs(["DRP-05"]), seed=0)
    assert row.caught
    assert "draws random numbers at attention.py" in row.causes[0]


@pytest.mark.parametrize("seed", [1, 7, pytest.param(6, marks=pytest.mark.slow)])
def test_a_correct_pair_is_equal_whatever_its_names_and_layouts(float64, seed):
    """1: a norm with an offset, cut experts; 6: q, k, v in one kernel; 7: scales beside biases."""
    assert list(false_alarms(1, seed)) == [(seed, "")]


def test_no_name_is_given_twice():
    names = Names(np.random.default_rng(0))
    assert len({names.draw() for _ in range(500)}) == 500
