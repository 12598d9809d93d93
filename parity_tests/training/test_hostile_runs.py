"""What a run's files may hold by accident or ill will: one line each, and no waiting.

`pytest -m survival` looks for more of it.
"""

import errno
import json
import os
import struct
import sys
from dataclasses import replace

import pytest

from parity_tests.training.test_checkpoint_store import CONFIG, about, history, state
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError
from transformer_spec.files import CheckpointError
from transformer_spec.presets import PRESETS
from transformer_training import command_line
from transformer_training.checkpoints import load_arrays, manifest, store
from transformer_training.runs import resuming
from transformer_training.runs.directory import RunDirectory
from transformer_training.tasks import make_task
from transformer_training.tasks.language_model import read_text


@pytest.mark.parametrize("kind", [[], {}, None, 1])
def test_a_variant_of_another_type(kind):
    with pytest.raises(ConfigError, match="norm: no variant"):
        ModelConfig.from_dict(CONFIG.to_dict() | {"norm": {"type": kind}})


def test_an_error_is_one_line_whatever_the_value():
    with pytest.raises(ConfigError) as error:
        ModelConfig.from_dict(CONFIG.to_dict() | {"arch": "a\nb\x1b[2J\ud800"})
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["backend", "preset"])
@pytest.mark.parametrize("value", [5, None, {"a": 1}])
def test_a_config_of_a_run_of_another_type(tmp_path, capsys, name, value):
    stored = {"backend": "jax", "preset": "char-gpt", "init_from": None, "tokenizer": None}
    preset = PRESETS["char-gpt"]
    stored |= {"model": preset.model.to_dict(), "train": preset.train.to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(stored | {name: value}))
    with pytest.raises(SystemExit) as end:
        command_line.parse(["--resume", str(tmp_path)])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"train.py: error: {name}: {value!r} is not usable")


def test_layers_without_number_are_refused_before_their_names_are_made(tmp_path):
    preset = PRESETS["char-gpt"]
    model, directory = replace(preset.model, num_layers=10**12), RunDirectory(str(tmp_path), "run")
    with pytest.raises(ConfigError, match="1,000,000,000,000 layers"):
        resuming.newest(directory, make_task(model, preset.train), preset.train, print)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a\0b", r"data: cannot read a\\x00b: embedded null byte"),
        ("\ud800", r"data: cannot read \\ud800: 'utf-8' codec can't encode"),
        ("a" * 5000, "data: cannot read a{5000}: File name too long"),
        (os.devnull, "data: .* is no regular file; give a text file"),
        (".", r"data: \. is no regular file"),
    ],
)
def test_data_that_is_no_text_file(path, message):
    with pytest.raises(ConfigError, match=message):
        read_text(path)


def test_a_dtype_that_numpy_has_not(tmp_path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2))
    with pytest.raises(ValueError, match="file: cannot be read as safetensors: .*float8_e4m3fn"):
        load_arrays(tmp_path / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes among files")
def test_nobody_waits_for_a_pipe(tmp_path):
    path = store.write(tmp_path / "checkpoints", about(), state(), history())
    (path / manifest.NAME).unlink()
    os.mkfifo(path / manifest.NAME)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: damaged: no such file"):
        manifest.read(path)
    os.mkfifo(tmp_path / "metrics.jsonl")
    directory = RunDirectory(str(tmp_path), "run", resume=True)
    assert directory.rewind(2) == 2
    assert directory.records() == []


def test_directories_that_cannot_be_read(tmp_path, monkeypatch):
    """Root may read them all."""

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(type(tmp_path), "iterdir", refuse)
    with pytest.raises(ConfigError, match="run_dir: cannot read .*: Permission denied"):
        RunDirectory(str(tmp_path), "run")
    with pytest.raises(CheckpointError, match=": Permission denied"):
        store.listed(tmp_path)


class TestTheEndOfAProgram:
    def test_nobody_reads_on(self, monkeypatch):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "w") as pipe:
            monkeypatch.setattr(sys, "stdout", pipe)
            assert command_line.exit_status(lambda: print("a line") or 0) == 1
            monkeypatch.undo()

    def test_ctrl_c_waits_for_nothing(self, monkeypatch, capsys):
        def main():
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "_exit", lambda status: (_ for _ in ()).throw(SystemExit(status)))
        monkeypatch.setattr(command_line.signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit, match="130"):
            command_line.exit_status(main)
        assert capsys.readouterr().err == "interrupted\n"
