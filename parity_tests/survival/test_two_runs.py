"""Two runs that begin in one directory at the same moment: one runs, the other is refused."""

import random
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from parity_tests.survival.process import Process, one_line
from parity_tests.survival.runs import Left, Setting, resumed, resumed_after

pytestmark = pytest.mark.survival

# Both have imported what they need, and wait at the door.
DOOR = """
import sys, time
import train
print("ready", flush=True)
while not __import__("os").path.exists(sys.argv[1]):
    time.sleep(0.0005)
sys.argv[:2] = ["train.py"]
sys.exit(train.main())
"""
REFUSED = re.compile(
    "train.py: error: (run_dir: .* is in use by a run that has not ended"
    "|run_dir: .* already holds another run; give a new one"
    "|.*config.json: No such file or directory"
    "|.*: does not exist; give a directory that holds a config.json)\n"
)


def meet(path: Path, door: Path, kinds: list[list[str]]) -> tuple[Process, Process]:
    """Who runs, and who is refused, of two command lines that begin at the same moment."""
    both = [Process("-c", DOOR, str(door), *arguments[1:]) for arguments in kinds]
    for process in both:
        assert process.wait_for(lambda process=process: "ready" in process.out)
    door.touch()
    one, other = both
    one.wait_for(lambda: other.popen.poll() is not None)
    runs, refused = (one, other) if one.popen.poll() is None else (other, one)
    assert refused.end() == 2, refused.out
    assert REFUSED.fullmatch(one_line(refused.err)), refused.err
    assert refused.out == "ready\n"
    return runs, refused


def reached(process: Process, left: Left, step: int) -> None:
    """Wait until the run has saved this update."""
    alive = process.wait_for(lambda: left.newest >= step)
    assert alive, process.out + process.err


def killed(process: Process) -> None:
    assert process.popen.poll() is None, process.out + process.err
    process.popen.kill()
    assert process.popen.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["two new", "one new, one that returns", "two that return"])
def test_one_runs(kind, request, data, rng, progress, outcome, tmp_path):
    """And when that one is killed, the directory is free: the next start goes on."""
    count = request.config.getoption("--meetings")
    counts: Counter[str] = Counter()
    setting = Setting(data, steps=100_000)
    path = tmp_path / "run0"
    for i in range(count):
        if kind != "two that return":
            path = tmp_path / f"run{i}"
        if kind == "one new, one that returns" and i % 2:
            begun(setting, path)
        counts[meeting(kind, setting, path, tmp_path / f"door{i}", rng)] += 1
        if kind != "two that return":
            goes_on(Left(path))
        progress(f"{kind}: {i + 1} of {count} meetings")
    shown = ", ".join(f"{number} refused as {why}" for why, number in sorted(counts.items()))
    outcome(f"two starts at once: {kind}", count, f"one ran each time; {shown}")


def begun(setting: Setting, path: Path) -> None:
    """A run that was killed."""
    first = Process(*setting.fresh(path, "torch"))
    reached(first, Left(path), 2)
    killed(first)


def meeting(kind: str, setting: Setting, path: Path, door: Path, rng: random.Random) -> str:
    """Two starts, of which one is killed in the end; how the other was refused."""
    left = Left(path)
    new, old = setting.fresh(path, "torch"), resumed(path)
    if kind == "two that return" and left.newest < 0:
        begun(setting, path)
    begin = left.newest
    kinds = {"two new": [new, new], "two that return": [old, old]}.get(kind, [new, old])
    runs, refused = meet(path, door, rng.sample(kinds, 2))
    reached(runs, left, begin + 3)
    if begin >= 0:
        assert resumed_after(runs.out) == begin
    killed(runs)
    reasons = {"in use": "in use", "another run": "another run"}
    reasons |= dict.fromkeys(("No such file", "does not exist"), "not yet a run")
    return next(reason for words, reason in reasons.items() if words in refused.err)


def goes_on(left: Left) -> None:
    """The next start, after the holder was killed."""
    begin = left.newest
    process = Process(*resumed(left.path, "--stop-after", str(begin + 2)))
    assert process.end() == 0, process.out + process.err
    assert resumed_after(process.out) == begin
    assert left.newest == begin + 2
    steps = [record["step"] for record in left.curve]
    assert steps == sorted(set(steps)), "one run wrote them all"


def test_while_one_trains_no_other_begins(data, outcome, tmp_path):
    """Much later than at the same moment; and the one that trains does not notice."""
    path = tmp_path / "run"
    setting, left = Setting(data, steps=100_000), Left(path)
    first = Process(*setting.fresh(path, "torch"))
    reached(first, left, 3)
    for arguments in (setting.fresh(path, "torch"), resumed(path), setting.fresh(path, "jax")):
        other = Process(*arguments)
        assert other.end() == 2
        assert REFUSED.fullmatch(one_line(other.err)), other.err
        assert other.out == ""
    reached(first, left, left.newest + 3)
    assert first.end(signal.SIGTERM) == 143
    goes_on(left)
    outcome("starts beside a run that trains", 3, "3 refused in one line")
