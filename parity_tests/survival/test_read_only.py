"""Directories that nobody may write to: one line, before any work, and nothing is changed."""

import pytest

from parity_tests.survival.disks import bound_by_permissions, protect, small_disk
from parity_tests.survival.process import Process, finished, one_line
from parity_tests.survival.runs import Left, Setting, assert_equal, resumed

pytestmark = pytest.mark.survival


def refused(arguments: list[str], reason: str, **more) -> str:
    """The line that says so."""
    process = Process(*arguments, **more)
    assert process.end() in (1, 2), process.out
    assert process.out == ""
    line = one_line(process.err)
    assert line.startswith("train.py: error: "), line
    assert reason in line
    return line


@pytest.fixture
def locked():
    """locked(directory): without the right to write in it, until the test is over."""
    paths = []

    def lock(path):
        path.chmod(0o555)
        paths.append(path)
        return path

    yield lock
    for path in paths:
        if path.exists():
            path.chmod(0o755)


def test_a_run_directory_without_the_right_to_write(data, locked, outcome, tmp_path):
    setting, path = Setting(data, steps=20), tmp_path / "run"
    path.mkdir()
    locked(path)
    arguments = bound_by_permissions(setting.fresh(path, "torch"))
    assert f"run_dir: cannot write to {path}" in refused(arguments, "Permission denied")
    assert not list(path.iterdir())
    outcome("a run directory that is read-only", 1, "refused in one line")


def test_a_run_that_returns_where_nothing_can_be_written(data, whole, locked, outcome, tmp_path):
    """Afterwards it is resumed as if nothing had happened."""
    setting, left = Setting(data, steps=20), Left(tmp_path / "run")
    finished(*setting.fresh(left.path, "torch", "--stop-after", "9"))
    (left.path / ".lock").unlink()
    locked(left.path)
    refused(bound_by_permissions(resumed(left.path)), "Permission denied")
    left.path.chmod(0o755)
    locked(left.path / "checkpoints")
    process = Process(*bound_by_permissions(resumed(left.path)))
    assert process.end() == 1
    last = process.out.splitlines()[-1]
    assert "cannot be" in last
    assert "Permission denied" in last
    assert process.err == ""
    (left.path / "checkpoints").chmod(0o755)
    finished(*resumed(left.path))
    assert_equal(left, whole(setting, "torch"))
    outcome("a run resumed where it is read-only", 2, "one line each; end bit-equal")


def test_a_parent_without_the_right_to_write(data, locked, outcome, tmp_path):
    """Without --run-dir a run makes its own directory in runs/, where it is started."""
    setting = Setting(data, steps=20)
    (tmp_path / "runs").mkdir()
    locked(tmp_path / "runs")
    arguments = [a for a in setting.fresh(tmp_path, "torch") if not a.startswith("--run-dir")]
    line = refused(bound_by_permissions(arguments), "Permission denied", cwd=tmp_path)
    assert "run_dir: cannot write to runs/char-gpt-torch-" in line
    (tmp_path / "runs").rmdir()
    locked(tmp_path)
    refused(bound_by_permissions(arguments), "Permission denied", cwd=tmp_path)
    tmp_path.chmod(0o755)
    outcome("runs/ read-only, and where it would be", 2, "refused in one line")


def test_a_run_that_nobody_may_read(data, stopped, outcome, tmp_path):
    """Neither its directory, nor its config, nor its checkpoints."""
    setting = Setting(data, steps=20)
    finished(*setting.fresh(tmp_path / "run", "torch", "--stop-after", "9"))
    for place in ("run", "run/config.json", "run/checkpoints"):
        path = tmp_path / place
        mode = path.stat().st_mode
        path.chmod(0)
        refused(bound_by_permissions(resumed(tmp_path / "run")), "Permission denied")
        path.chmod(mode)
    path = tmp_path / "run"
    path.chmod(0o333)
    refused(bound_by_permissions(setting.fresh(path, "torch")), "Permission denied")
    path.chmod(0o755)
    outcome("a run that cannot be read", 4, "refused in one line")


def test_a_disk_that_becomes_read_only(data, whole, outcome, tmp_path):
    """As after an error of the disk; when it is writable again the run is resumed."""
    setting = Setting(data, steps=40)
    with small_disk(tmp_path / "disk", "20m") as disk:
        protect(disk)
        refused(setting.fresh(disk / "run", "torch"), "Read-only file system")
        protect(disk, read_only=False)
        left = Left(disk / "run")
        finished(*setting.fresh(left.path, "torch", "--stop-after", "9"))
        protect(disk)
        refused(resumed(left.path), "Read-only file system")
        protect(disk, read_only=False)
        finished(*resumed(left.path))
        assert_equal(left, whole(setting, "torch"))
    outcome("a disk that is read-only", 2, "refused in one line; end bit-equal")
