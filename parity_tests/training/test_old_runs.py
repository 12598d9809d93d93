"""An old run is a promise: what commit a19766d saved resumes today, in either framework.

data/old_runs/ holds two runs of that commit, stopped with `--stop-after 9` of 20 updates, and the
records of the same two runs uninterrupted:

    char-gpt-jax   --backend jax --preset char-gpt --schedule WarmupCosine(warmup_steps=3)
    sort-torch     --backend torch --preset sort --schedule InverseSqrt(warmup_steps=3)

Both are tiny, in float64, with dropout on: no figure may differ by more than rounding.
"""

import json
import shutil
from pathlib import Path

import pytest

from parity_tests.processes import run

OLD = Path(__file__).parent / "data" / "old_runs"
FIGURES = ("lr", "loss", "accuracy", "grad_norm", "eval_loss", "eval_accuracy", "exact_match")


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
@pytest.mark.parametrize(
    "name", ["char-gpt-jax", pytest.param("sort-torch", marks=pytest.mark.slow)]
)
def test_an_old_run_resumes_and_equals_the_uninterrupted_one(tmp_path, name, backend):
    path = shutil.copytree(OLD / name, tmp_path / name)
    expected = records(path / "uninterrupted.jsonl")
    arguments = ["--resume", str(path), "--backend", backend]
    data = ["--data", str(OLD / "text.txt")] if name.startswith("char-gpt") else []
    done = run("train.py", *arguments, *data)
    assert done.returncode == 0, done.stderr
    found = records(path / "metrics.jsonl")
    assert [r["step"] for r in found] == [r["step"] for r in expected]
    for ours, theirs in zip(found, expected, strict=True):
        figures = {key: value for key, value in theirs.items() if key in FIGURES}
        assert {key: ours[key] for key in figures} == pytest.approx(figures, rel=1e-10), ours
        assert ours.get("sample") == theirs.get("sample")
    # Their first parameters were drawn by jax's own formula, and no name of ours may be said of it.
    assert json.loads((path / "config.json").read_text())["draws"] is None
    last = max((path / "checkpoints").iterdir()) / "checkpoint.json"
    assert "draws" not in json.loads(last.read_text())


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
