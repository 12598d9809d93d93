"""`python -m verification`: what it compares, and mistakes."""

import json

import pytest

from verification.__main__ import main

MISTAKES = {
    "an unknown preset": ("check char-gtp", "did you mean char-gpt"),
    "negative steps": ("check char-gpt --steps -1", "--steps: -1 is not usable"),
    "no output": ("report", "give --html FILE, --markdown FILE or --json"),
    "no folder": ("report --html gone/report.html", "gone/report.html: no such folder"),
    "an unknown bug": ("bugs XYZ-1", "XYZ-1: no such bug"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(float64, capsys, name):
    line, message = MISTAKES[name]
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert "EQUAL" not in said.out
    assert said.err.count("\n") == 1
    assert message in said.err


@pytest.mark.slow
def test_check_compares_a_preset_and_its_updates(float64, capsys):
    assert main(["check", "char-modern", "--grads", "--steps", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    kinds = {value["kind"] for value in found["values"]}
    assert kinds == {"value", "gradient", "parameter gradient"}
    assert found["steps"]["loss_difference"] < 1e-12


@pytest.mark.slow
@pytest.mark.xdist_group("decoder")
def test_bugs_are_scored_from_the_command_line(float64, capsys):
    assert main(["bugs", "ATT-01", "NRM-04", "--false-alarms", "1"]) == 0
    said = capsys.readouterr().out
    assert "caught          2 of 2" in said
    assert "false alarms    0 of 1" in said
