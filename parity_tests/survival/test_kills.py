"""SIGKILL at random moments: what was saved stays, and the end is that of an undisturbed run."""

from dataclasses import replace
from itertools import cycle, repeat

import numpy as np
import pytest

from parity_tests.processes import ALL_THREADS
from parity_tests.survival.killing import Killer
from parity_tests.survival.runs import Left, Setting, assert_equal

pytestmark = pytest.mark.survival

# Wide enough that to write a checkpoint takes a while beside an update.
WIDE = 4096
# The part of all kills that a run of each kind gets.
PARTS = {"torch": 0.4, "torch, all threads": 0.1, "jax": 0.3, "alternating": 0.2}


def killed(request, part: str, setting: Setting, backends, rng, progress, tmp_path):
    """The runs that it took to be killed as often as this part is to be, and what was counted."""
    kills = max(1, round(PARTS[part] * request.config.getoption("--kills")))
    killer = Killer(setting, backends, rng, kills, lambda text: progress(f"{part}: {text}"))
    runs = []
    while killer.tally["kills"] < kills:
        runs.append(killer.kill_until_done(tmp_path / f"run{len(runs)}"))
    assert killer.tally["returns"] or kills < 5
    return runs, killer.tally


def times(tally) -> str:
    places = ("in a save", "in a removal", "before there was a checkpoint")
    return f"{tally['kills']} kills: " + ", ".join(f"{tally[place]} {place}" for place in places)


@pytest.mark.parametrize("part", ["torch", "torch, all threads", "jax"])
def test_the_end_is_that_of_an_undisturbed_run(
    request, part, data, whole, rng, progress, outcome, tmp_path
):
    """Weights, moments, losses and records to the last bit; jax has all its threads anyway."""
    backend = part.split(",")[0]
    setting = Setting(data, steps=300, d_ff=WIDE)
    if part.endswith("all threads"):
        setting = replace(setting, steps=100, batch_size=2048, d_ff=64, threads=ALL_THREADS)
    expected = whole(setting, backend)
    runs, tally = killed(request, part, setting, repeat(backend), rng, progress, tmp_path)
    for run in runs:
        assert_equal(run, expected)
    kept = f"{tally['returns']} returns to the newest checkpoint, none lost"
    outcome(f"SIGKILL, {part}", times(tally), f"{kept}; {len(runs)} runs ended bit-equal")


def test_backends_that_take_turns_end_where_one_would(
    request, data, whole, rng, progress, outcome, tmp_path
):
    """Each process but the first resumes from what the other backend saved."""
    setting = Setting(data, steps=200, d_ff=64, dtype="float64")
    turns = cycle(["torch", "jax"])
    runs, tally = killed(request, "alternating", setting, turns, rng, progress, tmp_path)
    found = [
        differences(run, whole(setting, backend)) for run in runs for backend in ("torch", "jax")
    ]
    worst = {name: max(each[name] for each in found) for name in found[0]}
    assert max(worst.values()) <= 1e-10
    figures = ", ".join(f"{name} {value:.1e}" for name, value in worst.items())
    outcome("SIGKILL, backends in turn", times(tally), f"float64, largest difference: {figures}")


def differences(run: Left, expected: Left) -> dict[str, float]:
    """The largest differences of weights, of losses, and of all fields of all records."""
    weights = expected.weights
    assert [r.keys() for r in run.curve] == [r.keys() for r in expected.curve]
    fields = [
        abs(ours[name] - theirs[name])
        for ours, theirs in zip(run.curve, expected.curve, strict=True)
        for name in ours
        if name != "sample"
    ]
    return {
        "weights": max(float(np.abs(run.weights[n] - weights[n]).max()) for n in weights),
        "losses": float(np.abs(run.losses - expected.losses).max()),
        "records": max(fields),
    }
