"""A hostile file is answered in one line, runs no code and takes no memory beyond its size."""

import os
import shutil
from pathlib import Path

import pytest

from parity_tests.hub.file_bytes import pickle_bytes, unpickle
from parity_tests.hub.hostile_files import HOSTILE, Code
from parity_tests.hub.peak_memory import HIGHEST, LINUX
from parity_tests.processes import run_python
from transformer_hub import CheckpointError, from_pretrained
from transformer_hub.__main__ import PROGRAM, main


@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_and_exit_status_2(directory, name, capsys, monkeypatch):
    """The same line from Python and from the command line, and no code of a pickle runs."""
    make, message = HOSTILE[name]
    make(directory)
    monkeypatch.chdir(directory)
    with pytest.raises(CheckpointError, match=message) as error:
        from_pretrained(directory)
    assert main(["inspect", str(directory)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"{PROGRAM}: error: {error.value}\n"
    assert not (directory / "the code has run").exists()


def test_the_code_of_the_pickles_would_run(tmp_path, monkeypatch):
    """What the test above rests on: the pickle does its harm where it is trusted."""
    monkeypatch.chdir(tmp_path)
    unpickle(pickle_bytes({"a": Code()}))
    assert (tmp_path / "the code has run").exists()


@LINUX
def test_no_hostile_file_takes_more_memory_than_it_is_large(good, tmp_path):
    """All of them in one process: they have 11 MB at most, a broken reader would take gigabytes."""
    for name, (make, _) in HOSTILE.items():
        make(Path(shutil.copytree(good, tmp_path / name / "checkpoint")))
    grown = run_python(
        f"{HIGHEST}\n"
        "import sys, pathlib, gguf, msgpack, torch\n"
        "from transformer_hub import from_pretrained\n"
        f"from_pretrained({str(good)!r})\n"
        "before = highest()\n"
        f"for path in sorted(pathlib.Path({str(tmp_path)!r}).glob('*/checkpoint')):\n"
        "    try:\n"
        "        from_pretrained(path)\n"
        "    except ValueError:\n"
        "        continue\n"
        "    raise SystemExit(f'{path} is accepted')\n"
        "print(highest() - before)\n"
    )
    assert int(grown) < 64 * 2**20


def test_a_file_without_the_right_to_read_it(directory):
    (directory / "model.safetensors").chmod(0)
    if os.access(directory / "model.safetensors", os.R_OK):
        pytest.skip("this user, root, may read every file")
    with pytest.raises(CheckpointError, match="model.safetensors: Permission denied"):
        from_pretrained(directory)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gpt2", "gpt2: does not exist, and nothing is downloaded; give a directory .*hf download"),
        ("config.json", "config.json: is a file; give a directory that holds a config.json"),
    ],
)
def test_a_path_that_is_no_directory(good, path, message):
    with pytest.raises(CheckpointError, match=message):
        from_pretrained(good / path)
