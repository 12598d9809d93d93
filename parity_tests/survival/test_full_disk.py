"""A disk that becomes full: one line, exit status 1, and all that was saved before is whole."""

import re
from pathlib import Path

import pytest

from parity_tests.survival.disks import fill, resize, small_disk, with_files_below
from parity_tests.survival.process import Process, one_line, partials
from parity_tests.survival.runs import Left, Setting, assert_equal, resumed, resumed_after

pytestmark = pytest.mark.survival

FULL = "No space left on device"
BACKENDS = pytest.mark.parametrize("backend", ["torch", "jax"])


def stopped(process: Process, path: Path, file: str, reason: str) -> None:
    """The last line says what cannot be written, and how to resume when there is room."""
    assert process.end() == 1, process.out + process.err
    assert process.err == ""
    *_, last = process.out.splitlines()
    cause = rf"stopped: {path}/{file}: cannot be written: .*{reason}.*; "
    assert re.fullmatch(rf"{cause}resume with: python train\.py --resume {path}", last), last
    assert partials(path) == []


def goes_on(left: Left, expected: Left) -> None:
    """There is room: the end is the undisturbed one."""
    begin = left.newest
    process = Process(*resumed(left.path))
    assert process.end() == 0, process.out + process.err
    assert resumed_after(process.out) == begin
    assert "not used" not in process.out
    assert_equal(left, expected)


@BACKENDS
def test_while_a_checkpoint_is_written(backend, data, whole, outcome, tmp_path):
    setting = Setting(data, steps=60)
    with small_disk(tmp_path / "disk", "700k") as disk:
        left = Left(disk / "run")
        # So many are kept that they fill the disk.
        process = Process(*setting.fresh(left.path, backend, "--keep", "100"))
        stopped(process, left.path, r"checkpoints/step-\d+", FULL)
        assert left.newest > 5
        assert [saved.manifest.step for saved in left.verified()] == left.steps
        full = left.newest
        resize(disk, "20m")
        goes_on(left, whole(setting, backend))
    outcome(f"disk full while saving, {backend}", 1, f"stopped after update {full}; end bit-equal")


@BACKENDS
def test_while_a_record_is_written(backend, data, whole, outcome, tmp_path):
    """The disk fills while an epoch has no save."""
    setting = Setting(data, steps=60)
    with small_disk(tmp_path / "disk", "1m") as disk:
        left = Left(disk / "run")
        rarely = ["--save-every", "100", "--log-every", "1"]
        process = Process(*setting.fresh(left.path, backend, *rarely))
        assert process.wait_for(lambda: (left.path / "metrics.jsonl").exists())
        filler = fill(disk)
        stopped(process, left.path, "metrics.jsonl", FULL)
        assert left.steps == [0]
        filler.unlink()
        process = Process(*resumed(left.path))
        assert process.end() == 0, process.out + process.err
        assert left.weights.keys()
        expected = whole(setting, backend)
        assert left.digests == expected.digests
        assert [r["step"] for r in left.curve] == list(range(1, 61))
    outcome(f"disk full while logging, {backend}", 1, "stopped in one line; end bit-equal")


@pytest.mark.parametrize("room", [0, 4096, 8192, 16384, 32768])
def test_from_the_start(room, data, outcome, tmp_path):
    """Nothing, the directory, its lock, the config, or a part of the first checkpoint fits."""
    setting = Setting(data, steps=60)
    with small_disk(tmp_path / "disk", "256k") as disk:
        left = Left(disk / "run")
        filler = fill(disk)
        with open(filler, "r+b") as file:
            file.truncate(filler.stat().st_size - room)
        process = Process(*setting.fresh(left.path, "torch"))
        status = process.end()
        assert status in (1, 2)
        assert FULL in one_line(process.out + process.err)
        assert partials(disk) == []
    outcome(f"disk full from the start but for {room // 1024} kB", 1, f"exit status {status}")


@BACKENDS
def test_where_the_weights_are_written_last(backend, data, whole, outcome, tmp_path):
    """No file may be as large as the picture of losses, which comes after all updates."""
    setting = Setting(data, steps=60)
    left = Left(tmp_path / "run")
    process = Process(*with_files_below(40_000, setting.fresh(left.path, backend)))
    stopped(process, left.path, "loss.png", "File too large")
    assert left.newest == 60
    assert not (left.path / "model.safetensors").exists()
    goes_on(left, whole(setting, backend))
    outcome(f"files too large at the end, {backend}", 1, "stopped in one line; end bit-equal")


@BACKENDS
def test_files_that_become_too_large(backend, data, whole, outcome, tmp_path):
    """A limit of its size, in place of a full disk where none can be mounted: of a checkpoint."""
    setting = Setting(data, steps=60, d_ff=4096)
    left = Left(tmp_path / "run")
    begun = Process(*setting.fresh(left.path, backend, "--stop-after", "5"))
    assert begun.end() == 0, begun.err
    process = Process(*with_files_below(100_000, resumed(left.path)))
    stopped(process, left.path, r"checkpoints/step-00000006", "File too large")
    assert left.newest == 5
    goes_on(left, whole(setting, backend))
    outcome(f"files too large while saving, {backend}", 1, "stopped in one line; end bit-equal")
