"""`python -m transformer_training.curves`: how far the losses of runs differ; what is refused."""

import json
import re

import numpy as np
import pytest

from parity_tests.training.test_checkpoint_store import about, state
from transformer_training import curves
from transformer_training.checkpoints import store
from transformer_training.curves import main

LOSSES = np.array([4.0, 2.0, 1.0, 0.5])


@pytest.fixture
def made(tmp_path, monkeypatch):
    """made(name, losses, ...): a run whose checkpoints hold these losses; all are in one place."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, *histories: np.ndarray) -> str:
        for losses in histories:
            step = len(losses)
            history = {"losses": losses, "accuracies": losses / 9}
            store.write(tmp_path / name / "checkpoints", about(step), state(step), history)
        return name

    return make


def rows(capsys) -> list[dict]:
    return json.loads(capsys.readouterr().out)["runs"]


def test_the_largest_difference_and_where_it_is(made, capsys):
    """At update 2 by 0.1, a twentieth; at update 4 by 0.05, a tenth."""
    first = made("first", LOSSES)
    other = made("other", LOSSES + np.array([0, 0.1, 0, -0.05]))
    assert main([first, other, first, "--json", "--out", "none"]) == 0
    one, two, three = rows(capsys)
    assert one == three == {
        "run": "first", "updates": 4, "compared": 4, "absolute": 0.0, "at": 1, "relative": 0.0,
        "relative_at": 1,
    }  # fmt: skip
    assert two["absolute"] == pytest.approx(0.1)
    assert two["relative"] == pytest.approx(0.1)
    assert (two["at"], two["relative_at"]) == (2, 4)


def test_what_a_person_reads_and_sees(made, tmp_path, capsys):
    made("a", LOSSES)
    made("longer", np.append(LOSSES * 1.5, [7.0, 8.0]))
    assert main(["a", "longer"]) == 0
    shown = capsys.readouterr().out
    assert "2.0e+00 at update 1, relative 5.0e-01 at 1, of 4" in shown
    assert "different length: compared over the updates that both have" in shown
    assert shown.splitlines()[-1] == "drawn in curves.png"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert main(["a", "a", "--out", "equal.png", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == "equal.png"
    assert (tmp_path / "equal.png").exists()


def test_no_picture(made, tmp_path, capsys):
    made("a", LOSSES)
    assert main(["a", "a", "--out", "none"]) == 0
    assert "different length" not in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.png")] == []


def test_the_newest_checkpoint_that_is_whole_counts(made, tmp_path, capsys):
    made("a", LOSSES[:2], LOSSES[:3])
    # Of the other files none is read.
    (tmp_path / "a/checkpoints/step-00000003/params.safetensors").unlink()
    assert curves.load("a").losses.tolist() == LOSSES[:3].tolist()
    (tmp_path / "a/checkpoints/step-00000003/history.safetensors").write_bytes(b"damaged")
    assert curves.load("a").losses.tolist() == LOSSES[:2].tolist()
    assert "history.safetensors: damaged: 7 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing", "run: 'nothing' is not usable; it must be the directory of a run"),
        ("empty", "run: 'empty' is not usable; .* a checkpoint in checkpoints/"),
        ("begun", "run: 'begun' is not usable; it must be a run with an update behind it"),
        ("damaged", "checkpoint.json: damaged: no such file"),
        ("a --out a.pdf", "out: 'a.pdf' is not usable; .* ends in .png, or none"),
        ("a --out no/such/place.png", "no/such/place.png: cannot be written: No such file"),
    ],
)
def test_mistakes(made, tmp_path, arguments, message, capsys):
    made("a", LOSSES)
    made("begun", LOSSES[:0])
    made("damaged", LOSSES)
    (tmp_path / "damaged/checkpoints/step-00000004/checkpoint.json").unlink()
    (tmp_path / "empty").mkdir()
    refused(capsys, message, "a", *arguments.split())


def refused(capsys, message: str, *arguments: str) -> None:
    assert main([*arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    last = shown.err.splitlines()[-1]
    assert last.startswith("python -m transformer_training.curves: error: ")
    assert re.search(message, last), last


def test_without_matplotlib(made, monkeypatch, capsys):
    made("a", LOSSES)
    monkeypatch.setattr(curves, "find_spec", lambda name: None)
    refused(capsys, "run: pip install matplotlib, or give --out none", "a", "a")
    assert main(["a", "a", "--out", "none"]) == 0
