"""Signals at the worst moments, closed streams: no traceback, and a checkpoint to resume from."""

import os
import signal
import time

import pytest

from parity_tests.survival.killing import half_written
from parity_tests.survival.process import TRAIN, Process, again, finished
from parity_tests.survival.runs import Left, Setting, assert_equal, resumed, resumed_after

pytestmark = pytest.mark.survival

BACKENDS = pytest.mark.parametrize("backend", ["torch", "jax"])
INTERRUPTED = {signal.SIGINT: 130, signal.SIGTERM: 143}
STEPS = 150


def begun(setting: Setting, left: Left, backend: str, step: int) -> Process:
    """A run that has saved this update."""
    process = Process(*attended(setting.fresh(left.path, backend)))
    assert process.wait_for(lambda: left.newest >= step), process.out + process.err
    return process


def attended(arguments: list[str]) -> list[str]:
    """A process that signals reach, also where the tests themselves run unattended (nohup, &)."""
    numbers = "signal.SIGINT, signal.SIGHUP, signal.SIGQUIT"
    return again(f"[signal.signal(each, signal.SIG_DFL) for each in ({numbers})]", arguments)


def goes_on(left: Left, expected: Left) -> None:
    """Every checkpoint is whole, and the end is the undisturbed one."""
    begin = left.newest
    assert [saved.manifest.step for saved in left.verified()] == left.steps
    process = finished(*resumed(left.path))
    assert resumed_after(process.out) == begin
    assert "not used" not in process.out
    assert_equal(left, expected)


@BACKENDS
@pytest.mark.parametrize("number", INTERRUPTED)
def test_while_a_checkpoint_is_written(backend, number, data, whole, rng, outcome, tmp_path):
    setting, left = Setting(data, STEPS, d_ff=4096), Left(tmp_path / "run")
    process = begun(setting, left, backend, rng.randrange(3, 20))
    assert process.wait_for(lambda: half_written(left), pause=0.0002)
    assert process.end(number) == INTERRUPTED[number]
    assert process.err == ""
    assert f" after update {left.newest} of {STEPS}; resume with: " in process.out.splitlines()[-1]
    assert half_written(left) == []
    goes_on(left, whole(setting, backend))
    name = signal.Signals(number).name
    outcome(f"{name} while saving, {backend}", 1, "saved, and resumed to a bit-equal end")


@BACKENDS
@pytest.mark.parametrize("number", INTERRUPTED)
def test_while_the_first_update_is_compiled(backend, number, data, whole, outcome, tmp_path):
    """The first checkpoint is written before it."""
    setting, left = Setting(data, STEPS, d_ff=4096), Left(tmp_path / "run")
    process = begun(setting, left, backend, 0)
    assert process.end(number) == INTERRUPTED[number]
    assert process.err == ""
    goes_on(left, whole(setting, backend))
    name = signal.Signals(number).name
    outcome(f"{name} at the first update, {backend}", 1, "saved, and went on to a bit-equal end")


@BACKENDS
def test_a_second_ctrl_c_ends_at_once(backend, data, whole, rng, progress, outcome, tmp_path):
    """Before, amid and after the end that the first one asks for; a third one, too."""
    setting, times, cut, half = Setting(data, STEPS, d_ff=4096), 6, 0, 0
    for i in range(times):
        left = Left(tmp_path / f"run{i}")
        process = begun(setting, left, backend, rng.randrange(2, 30))
        for _ in range(2 + i % 2):
            process.popen.send_signal(signal.SIGINT)
            time.sleep(rng.uniform(0, 0.05))
        # The second number: it came when Python was already ending.
        assert process.end() in (130, -signal.SIGINT), (process.out, process.err)
        assert process.err in ("", "interrupted\n")
        cut += process.err != ""
        half += bool(half_written(left))
        progress(f"{backend}: {i + 1} of {times} second Ctrl-C")
    goes_on(left, whole(setting, backend))
    assert cut, "all came too late"
    shown = f"{cut} ended at once, {half} of them amid a save; no traceback; end bit-equal"
    outcome(f"a second and third Ctrl-C, {backend}", times, shown)


@pytest.mark.parametrize("number", INTERRUPTED)
def test_on_the_way_to_the_first_update(number, data, rng, progress, outcome, tmp_path):
    """While the framework is imported, parameters are drawn, the step is compiled."""
    setting, times, name = Setting(data, 100_000), 8, signal.Signals(number).name
    for i in range(times):
        left = Left(tmp_path / f"run{i}")
        process = Process(*attended(setting.fresh(left.path, ("torch", "jax")[i % 2])))
        assert process.wait_for(lambda left=left: (left.path / "config.json").exists())
        time.sleep(rng.uniform(0, 4))
        status = process.end(number)
        assert status in (INTERRUPTED[number], -number), (process.out, process.err)
        assert process.err in ("", "interrupted\n")
        assert all(saved.manifest.step >= 0 for saved in left.verified())
        progress(f"{i + 1} of {times} early {name}: exit status {status}")
    outcome(f"{name} before the first update", times, "no traceback")


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM twice", "SIGQUIT"])
def test_what_ends_a_process_at_once(name, data, whole, rng, outcome, tmp_path):
    """A terminal that closes, somebody in a hurry: as if it were killed."""
    setting, left = Setting(data, STEPS, d_ff=4096), Left(tmp_path / "run")
    process = begun(setting, left, "torch", rng.randrange(3, 20))
    number = signal.Signals[name.split()[0]]
    for _ in name.split():
        process.popen.send_signal(number)
    assert process.end() in (-number, 128 + number)
    assert process.err == ""
    goes_on(left, whole(setting, "torch"))
    outcome(name, 1, "went on to a bit-equal end")


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["input", "output", "errors"])
def test_without_a_standard_stream(stream, data, whole, outcome, tmp_path):
    setting, left = Setting(data, STEPS), Left(tmp_path / "run")
    finished(*again(f"os.close({stream})", setting.fresh(left.path, "torch")))
    assert_equal(left, whole(setting, "torch"))
    outcome(f"standard stream {stream} closed", 1, "end bit-equal")


@BACKENDS
def test_into_a_pipe_that_breaks(backend, data, whole, outcome, tmp_path):
    """`train.py | head -1`: the run ends at the next line, and its last save is whole."""
    setting, left = Setting(data, STEPS), Left(tmp_path / "run")
    reading, writing = os.pipe()
    process = Process(*setting.fresh(left.path, backend), stdout=writing)
    os.close(writing)
    os.close(reading)
    status = process.end()
    assert status in (0, 1, 141, -signal.SIGPIPE), status
    assert process.err == "", process.err
    assert left.newest >= 0
    goes_on(left, whole(setting, backend))
    outcome(
        f"output a broken pipe, {backend}", 1, f"exit status {status}; bit-equal after a return"
    )


@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["line by line", "at once"])
@pytest.mark.parametrize("flag", ["--list", "--help", "--dry-run"])
def test_a_description_into_a_pipe_that_breaks(flag, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    process = Process(TRAIN, flag, stdout=writing, env={"PYTHONUNBUFFERED": unbuffered})
    os.close(writing)
    # What --help writes argparse loses without a word.
    assert process.end() == (0 if flag == "--help" else 1)
    assert process.err == ""
