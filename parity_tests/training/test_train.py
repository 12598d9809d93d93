"""train.py on the command line: whole runs, what they leave, and one line for each mistake."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from parity_tests.processes import ROOT, run
from transformer_spec.config import ModelConfig
from transformer_spec.parameters import parameter_shapes
from transformer_spec.train_config import TrainConfig
from transformer_training.checkpoints import load_arrays

TINY_SORT = [
    "--d-model",
    "16",
    "--d-ff",
    "24",
    "--num-layers",
    "1",
    "--num-decoder-layers",
    "1",
    "--batch-size",
    "8",
]
LOGGED = {"step", "seconds", "lr", "loss", "accuracy", "grad_norm", "tokens_per_second"}
EVALUATED = {"eval_loss", "eval_accuracy", "eval_exact_match", "sample"}
APART = {"loss_difference", "grad_norm_difference", "parameter_difference"}


def train(*arguments: str, **kwargs):
    return run("train.py", *arguments, **kwargs)


@pytest.mark.parametrize("backend", ["jax", "torch", pytest.param("both", marks=pytest.mark.slow)])
def test_a_run_leaves_all_that_it_promises(tmp_path, backend):
    steps = ["--steps", "5", "--log-every", "2", "--eval-every", "4"]
    path = tmp_path / "run"
    done = train("--backend", backend, *TINY_SORT, *steps, "--run-dir", str(path))
    assert done.returncode == 0, done.stderr
    assert "exact match of 1,000 held-out sequences" in done.stdout
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    *logged, final = records
    assert [r["step"] for r in logged] == [1, 2, 4, 5]
    expected = LOGGED | (APART if backend == "both" else set())
    assert [set(r) - EVALUATED == expected for r in logged] == [True] * 4
    assert [set(r) >= EVALUATED for r in logged] == [False, False, True, True]
    assert set(final) == {"step", "exact_match"}
    config = json.loads((path / "config.json").read_text())
    model = ModelConfig.from_dict(config["model"])
    assert TrainConfig.from_dict(config["train"]).steps == 5
    assert config["draws"] == "AS241"
    weights = load_arrays(path / "model.safetensors")
    assert {n: a.shape for n, a in weights.items()} == parameter_shapes(model)
    assert (path / "loss.png").read_bytes().startswith(b"\x89PNG")
    if backend == "both":
        assert max(r["loss_difference"] for r in logged) < 1e-5
        assert model.embed_dropout == 0.1  # both drop the same values


def test_text_from_a_file(tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    arguments = ["--backend", "torch", "--preset", "char-gpt", "--data", str(text), "--steps", "4"]
    sizes = ["--max-seq-len", "16", "--d-model", "16", "--d-ff", "24", "--num-layers", "1"]
    done = train(*arguments, *sizes, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "continued greedily" in done.stdout
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["vocab_size"] == len(set(text.read_text()))
    assert set(config["tokenizer"]["characters"]) == set(text.read_text())


def test_ctrl_c_loses_nothing(tmp_path):
    path = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "train.py", *TINY_SORT, "--log-every", "1", "--run-dir", str(path)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (path / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out
    assert "Traceback" not in err
    assert all(np.isfinite(a).all() for a in load_arrays(path / "model.safetensors").values())


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    path = tmp_path / "run"
    fast = ["--learning-rate", "1e30", "--clip-norm", "none", "--schedule", "Constant"]
    steps = ["--backend", "torch", "--steps", "20", "--log-every", "1"]
    done = train(*TINY_SORT, *fast, *steps, "--run-dir", str(path))
    assert done.returncode == 1
    assert "stopped: " in done.stdout
    assert " at update " in done.stdout
    assert "Traceback" not in done.stderr


class TestMistakes:
    """One line on stderr, exit status 2, and nothing written."""

    def refused(self, tmp_path, *arguments: str, program: list[str] | None = None) -> str:
        done = run(*(program or ["train.py"]), *arguments)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("train.py: error: ")
        return done.stderr

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("--d-model 130", "d_model: 130 is not usable; it must be divisible by num_heads 4"),
            ("--preset srot", "preset: no 'srot'; did you mean sort?"),
            ("--backend jx", "backend: no 'jx'; did you mean jax?"),
            ("--task sorting", "task: no 'sorting'; did you mean sort?"),
            ("--d-modle 64", "--d-modle: no such flag; did you mean --d-model?"),
            ("--norm LayrNorm", "norm: no variant 'LayrNorm'; did you mean LayerNorm?"),
            ("--norm LayerNorm(epsilon=1)", "epsilon: no such field of LayerNorm"),
            ("--num-layers -3", "num_layers: -3 is not usable; it must be at least 1"),
            ("--num-layers many", "num_layers: 'many' is not usable; it must be int"),
            ("--batch-size 0", "batch_size: 0 is not usable; it must be at least 1"),
            ("--attn-dropout 1.0", "attn_dropout: 1.0 is not usable; it must be in [0, 1)"),
            ("--learning-rate nan", "learning_rate: nan is not usable"),
            ("--steps 3 --epochs 4", "steps: 3, epochs: 4; give exactly one"),
            ("--seed", "argument --seed: expected one argument"),
            ("sort", "sort: unexpected; every value follows its flag"),
            ("--preset char-gpt --data /no/such/file", "data: cannot read /no/such/file: No such"),
            ("--preset char-gpt --task sort", "task: 'sort' is not usable"),
            ("--preset transformer-base", "task: none is not usable"),
            ("--schedule WarmupCosine(warmup_steps=9) --steps 5", "schedule.warmup_steps: 9"),
            ("--schedule WarmupCosine", "schedule: "),
            ("--run-dir README.md", "run_dir: README.md is a file; give a directory"),
            ("--run-dir README.md/run", "run_dir: cannot write to README.md/run: Not a directory"),
        ],
    )
    def test_named_with_what_would_be_right(self, tmp_path, arguments, message):
        assert message in self.refused(tmp_path, *arguments.split())

    @pytest.mark.parametrize(
        ("content", "message"),
        [(b"", "is empty"), (b"\xff\x00\xfe", "is not UTF-8 text"), (b"short", "is too short")],
    )
    def test_a_text_that_cannot_be_used(self, tmp_path, content, message):
        path = tmp_path / "text"
        path.write_bytes(content)
        found = self.refused(tmp_path, "--preset", "char-gpt", "--data", str(path))
        assert f"data: {path} {message}" in found

    def test_a_directory_that_holds_a_run(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        found = self.refused(tmp_path, "--run-dir", str(tmp_path))
        assert f"run_dir: {tmp_path} already holds another run; give a new one" in found
        assert [p.name for p in tmp_path.iterdir()] == ["config.json"]

    @pytest.mark.parametrize(
        ("absent", "backend"), [("torch", "torch"), ("jax", "jax"), ("torch", "both")]
    )
    def test_a_framework_that_is_not_installed(self, tmp_path, absent, backend):
        hide = f"import sys; sys.modules[{absent!r}] = None; import train; sys.exit(train.main())"
        found = self.refused(tmp_path, "--backend", backend, program=["-c", hide])
        assert f"backend: {absent} is not installed; run: pip install" in found


def test_help_names_every_field_with_its_default():
    done = train("--preset", "char-gpt", "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for name in (*ModelConfig.__dataclass_fields__, *TrainConfig.__dataclass_fields__):
        assert f"--{name.replace('_', '-')}" in text
    assert "default: LayerNorm(eps=1e-05)" in text
    assert "default: 5000" in text


def test_list_and_dry_run_start_nothing(tmp_path):
    listed = train("--list")
    assert "transformer-base" in listed.stdout
    assert "63,045,632" in listed.stdout
    dry = train("--dry-run", "--norm", "RMSNorm(eps=1e-6)", "--run-dir", str(tmp_path / "run"))
    assert dry.returncode == 0, dry.stderr
    assert '"type": "RMSNorm"' in dry.stdout
    assert "tokens per step 1,088, 576 scored" in dry.stdout
    assert "updates         7,850 (157 to an epoch)" in dry.stdout
    assert not (tmp_path / "run").exists()


def test_the_first_run_needs_no_framework_to_be_described():
    """--list and mistakes answer at once: neither framework is imported for them."""
    program = (
        "import sys; sys.argv = ['train.py', '--list']; import train; train.main();"
        "assert not {'jax', 'torch'} & set(sys.modules)"
    )
    assert run("-c", program).returncode == 0
