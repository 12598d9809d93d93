"""Runs that are resumed on the command line, after signals, damage and slices of time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from parity_tests.processes import ROOT
from parity_tests.small_runs import curve, digests
from parity_tests.training.test_train import TINY_SORT, train
from transformer_training.checkpoints import store

pytestmark = pytest.mark.slow
DECAYING = ["--schedule", "InverseSqrt(warmup_steps=20)", "--learning-rate", "0.1"]
RUN = [*TINY_SORT, *DECAYING, "--log-every", "10", "--save-every", "25", "--keep", "5"]


def begun(path, *arguments: str) -> subprocess.Popen:
    """A process that trains, once it has written its first record."""
    process = subprocess.Popen(
        [sys.executable, "train.py", *RUN, *arguments, "--run-dir", str(path)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(store.listed(path / "checkpoints")) < 2 and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def test_a_run_stopped_by_a_signal_resumes_and_equals_an_undisturbed_one(tmp_path):
    """Meanwhile it is locked; a checkpoint that was damaged is named and not used."""
    path, whole = tmp_path / "run", tmp_path / "whole"
    steps = ["--backend", "torch", "--steps", "300"]
    assert train(*RUN, *steps, "--run-dir", str(whole)).returncode == 0
    process = begun(path, *steps)
    second = train("--resume", str(path))
    fresh = train(*RUN, *steps, "--run-dir", str(path))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, ""), out
    for done, message in ((second, "is in use by a run"), (fresh, "already holds another run")):
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert message in done.stderr
    last = out.splitlines()[-1]
    assert last.endswith(f"; resume with: python train.py --resume {path}")
    saved = store.listed(path / "checkpoints")[-1]
    assert last.startswith(f"stopped by SIGTERM after update {store.step_of(saved)} of 300")
    (saved / "second_moment.safetensors").write_bytes(b"damaged")
    done = train("--resume", str(path))
    assert done.returncode == 0, done.stderr
    assert f"{saved}/second_moment.safetensors: damaged: 7 bytes, not" in done.stdout
    assert "exact match of 1,000 held-out sequences" in done.stdout
    assert digests(path) == digests(whole)
    assert curve(path) == curve(whole)
    again = train("--resume", str(path))
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == f"{path} is finished: all 300 updates are done\n"


def test_slices_of_time_and_a_change_of_framework(tmp_path):
    """jax in two processes is jax in one, bit for bit; torch may end what jax began."""
    whole, sliced, changed = (tmp_path / name for name in ("whole", "sliced", "changed"))
    sizes = ["--d-model", "16", "--num-layers", "1", "--attention-scale", "none"]
    schedule = ["--schedule", "WarmupCosine(warmup_steps=5)"]
    run = ["--preset", "char-gpt", *sizes, *schedule, "--backend", "jax"]
    run += ["--steps", "40", "--log-every", "10"]
    assert train(*run, "--run-dir", str(whole)).returncode == 0
    first = train(*run, "--stop-after", "17", "--run-dir", str(sliced))
    assert first.returncode == 0, first.stderr
    assert "stopped as asked after update 17 of 40; resume with: " in first.stdout
    shutil.copytree(sliced, changed)
    past = train("--resume", str(sliced), "--stop-after", "17")
    assert past.returncode == 2
    assert "stop_after: 17 is not usable; it must be above 17" in past.stderr
    assert train("--resume", str(sliced)).returncode == 0
    assert digests(sliced) == digests(whole)
    assert curve(sliced) == curve(whole)
    other = train("--resume", str(changed), "--backend", "torch")
    assert other.returncode == 0, other.stderr
    assert json.loads((changed / "config.json").read_text())["backend"] == "torch"
    for path in (sliced, changed):
        assert json.loads((path / "config.json").read_text())["draws"] == "AS241"
        last = max((path / "checkpoints").iterdir()) / "checkpoint.json"
        assert json.loads(last.read_text())["draws"] == "AS241"
    for ours, theirs in zip(curve(whole), curve(changed), strict=True):
        assert ours.keys() == theirs.keys()
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
