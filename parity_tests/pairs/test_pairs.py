"""Every pair by the user's command: the verdict, the place of the fault, its cause."""

import json
from collections.abc import Mapping

import pytest
import transformers

from parity_tests.pairs.answers import ask
from parity_tests.pairs.pending import MISJUDGED, MISPLACED, UNNAMED
from parity_tests.pairs.table import FOLDER, PAIRS, Pair
from parity_tests.processes import run

WRONG = [pair for pair in PAIRS if pair.verdict != "equal"]
SEPARATE = [pair for pair in PAIRS if pair.file == "gelu_module"]
QUICK = ("attention_layers", "conv_same_stride", "gelu_module", "nnx_blocks", "small_modules")


def grouped(pairs: list[Pair], pending: Mapping[str, str]) -> list:
    """The tests of one pair run in one process, which asks once."""
    return [pytest.param(pair, id=str(pair), marks=_marks(pair, pending)) for pair in pairs]


def _marks(pair: Pair, pending: Mapping[str, str]) -> list:
    marks = [pytest.mark.xdist_group(str(pair))]
    if pair.file not in QUICK:
        marks += [pytest.mark.slow, pytest.mark.long]
    if pair.file == "transformers_models" and not hasattr(transformers, "FlaxBertModel"):
        marks.append(pytest.mark.skip(reason="transformers 5 has no Flax classes, 4.57.6 has"))
    if str(pair) in pending:
        marks.append(pytest.mark.xfail(reason=pending[str(pair)]))
    return marks


@pytest.mark.parametrize("pair", grouped(PAIRS, MISJUDGED))
def test_verdict(pair):
    answer = ask(pair)
    assert answer.verdict == pair.verdict, answer.message or answer.faults


@pytest.mark.parametrize("pair", grouped([pair for pair in WRONG if pair.placed], MISPLACED))
def test_place(pair):
    answer = ask(pair)
    assert answer.placed(pair), f"{answer.lines(pair)}, not {pair.marked_lines()}"


@pytest.mark.parametrize("pair", grouped(WRONG, UNNAMED))
def test_cause(pair):
    answer = ask(pair)
    assert answer.named(pair), [fault["cause"] for fault in answer.faults]


@pytest.mark.parametrize("pair", SEPARATE, ids=str)
def test_the_command_in_its_own_process(pair):
    done = run("-m", "parity", *pair.command(), "--json")
    assert json.loads(done.stdout)["verdict"] == pair.verdict
    assert done.returncode == (pair.verdict == "different")


def test_every_fault_of_a_line_is_marked():
    assert [pair for pair in WRONG if pair.placed and not pair.marked_lines()] == []


def test_every_file_of_builders_is_in_the_table():
    files = {p for p in FOLDER.rglob("*.py") if "\ndef build_torch" in p.read_text("utf-8")}
    assert files == {pair.path for pair in PAIRS}
