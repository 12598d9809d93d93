"""metrics.jsonl and config.json damaged, or not files at all: each is reported."""

import json
import shutil
from pathlib import Path

import pytest

from parity_tests.survival.process import Process, one_line
from parity_tests.survival.runs import Left, Setting, resumed
from parity_tests.survival.tally import copied
from parity_tests.survival.test_damage import (
    ONCE,
    directory,
    emptied,
    flipped,
    link_to_itself,
    link_to_nothing,
    longer,
    missing,
    pipe,
    truncated,
)
from transformer_training.runs.directory import RunDirectory

pytestmark = pytest.mark.survival


def test_records(request, stopped, trials, rng, outcome, tmp_path):
    """The run is resumed; what cannot be read any more is counted, and what can be is kept."""
    times, whole = request.config.getoption("--damages"), stopped.curve
    lost = 0
    for damage in (truncated, flipped, longer) * times + (missing, emptied, pipe):
        path = copied(stopped.path, tmp_path / "run")
        damage(path / "metrics.jsonl", rng)
        found = trials("--resume", path)
        assert found.start()["step"] == 9
        printed = [line for line in found.out.splitlines() if "metrics.jsonl has lost" in line]
        kept = records(path)
        assert len(kept) + (int(printed[0].split()[3]) if printed else 0) == len(whole), found.out
        assert set(kept) <= set(map(json.dumps, whole)) or damage in (flipped, longer)
        lost += bool(printed)
    outcome("damaged metrics.jsonl", times * 3 + 3, f"resumed, {lost} times with records lost")


def records(path: Path) -> list[str]:
    """The records that a run has, none of whose lines is anything else."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    assert len(RunDirectory(str(path), "", resume=True).records()) == len(lines)
    return [json.dumps(record) for record in Left(path).curve]


@pytest.mark.parametrize("damage", [directory, link_to_itself, link_to_nothing])
def test_records_that_are_no_file(damage, stopped, trials, rng, tmp_path):
    """Nobody loses a directory that bears the name; a link gives way."""
    path = copied(stopped.path, tmp_path / "run")
    damage(path / "metrics.jsonl", rng)
    found = trials("--resume", path)
    if damage is directory:
        assert found.status == 1, found.err
        assert found.err == ""
        assert "metrics.jsonl: cannot be " in found.out.splitlines()[-1]
        assert (path / "metrics.jsonl").is_dir()
    else:
        assert found.start()["step"] == 9
        assert "has lost 5 earlier records" in found.out
        assert not (path / "metrics.jsonl").is_symlink()


def test_a_config_that_is_no_file(stopped, trials, rng, outcome, tmp_path):
    for damage in ONCE:
        if "step" in damage.__name__:
            continue
        path = copied(stopped.path, tmp_path / "run")
        damage(path / "config.json", rng)
        assert f"{path / 'config.json'}: " in trials("--resume", path).error(), damage.__name__
    outcome("config.json missing, emptied, a link, a directory, a pipe", 6, "one line each")


def test_what_is_no_run(stopped, data, trials, tmp_path):
    """--resume of nothing, of a file, of an empty directory, of weights alone, of what began."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    weights = tmp_path / "weights"
    shutil.copytree(stopped.path, weights, ignore=shutil.ignore_patterns("checkpoints"))
    for name, message in {
        "nothing": "does not exist; give a directory",
        "file": "is a file; give a directory",
        "empty": "config.json: No such file",
        "weights": "it has no checkpoint yet; start anew in another directory",
    }.items():
        assert message in trials("--resume", tmp_path / name).error()


def test_mistakes_from_the_command_line(stopped, data, rng, tmp_path):
    """As above, by processes of their own: one line, and no traceback from anywhere."""
    start = Setting(data, steps=3).fresh(tmp_path / "new", "torch", "--init-from", str(tmp_path))
    shutil.copy(stopped.path / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    path = copied(stopped.path, tmp_path / "run")
    content = (path / "config.json").read_bytes()
    (path / "config.json").write_bytes(content.replace(b'"Learned"', b'["Learned"]'))
    other = copied(stopped.path, tmp_path / "other")
    (other / "config.json").write_bytes(content.replace(b'"steps": 12', b'"steps": 1e999'))
    for arguments in (start, resumed(path), resumed(other)):
        process = Process(*arguments)
        assert process.end() == 2, process.out
        assert one_line(process.err).startswith("train.py: error: ")
        assert process.out == ""
