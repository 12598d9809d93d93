"""A run is killed, and its last checkpoint damaged: what `pytest -m survival` does at length.

The process that is killed is a real one. The run is resumed in this process, where torch is
imported already.
"""

import sys

import train
from parity_tests.survival.killing import half_written
from parity_tests.survival.process import Process
from parity_tests.survival.runs import (
    Left,
    Setting,
    assert_equal,
    resumed,
    resumed_after,
    write_text,
)


def run_train(monkeypatch, arguments: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    assert train.main() == 0


def test_one_kill_and_one_flipped_byte(tmp_path, monkeypatch, capsys):
    setting = Setting(write_text(tmp_path / "text"), steps=1000)
    left, whole = Left(tmp_path / "run"), Left(tmp_path / "whole")
    process = Process(*setting.fresh(left.path, "torch", "--log-every", "2"))
    assert process.wait_for(lambda: left.newest >= 3 and half_written(left), pause=0.0002)
    process.popen.kill()
    assert process.popen.wait() < 0
    newest = left.newest
    file = left.checkpoints[-1] / "first_moment.safetensors"
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)
    end = ["--stop-after", str(newest + 2)]
    run_train(monkeypatch, resumed(left.path, *end))
    printed = capsys.readouterr().out
    assert f"{file}: damaged: sha256 " in printed
    assert resumed_after(printed) == newest - 1
    run_train(monkeypatch, setting.fresh(whole.path, "torch", "--log-every", "2", *end))
    assert_equal(left, whole)
