"""One command, one run: repeated, stopped or killed and resumed, it is the same bit for bit.

On any number of threads. A batch has as many tokens as torch needs before its threads share the
gradient of an embedding: unless it is told otherwise, they add repeated rows in any order.
"""

import signal
import subprocess
import sys
import time

import pytest

from parity_tests.processes import ALL_THREADS, ROOT, environment, run
from parity_tests.small_runs import curve, digests
from transformer_training.checkpoints import store

SIZES = "--max-seq-len 16 --d-model 16 --d-ff 16 --num-heads 2 --num-layers 1 --batch-size 512"
RATE = "--schedule WarmupCosine(warmup_steps=3) --learning-rate 0.01 --ffn-hidden-dropout 0.1"
RHYTHM = "--steps 24 --log-every 1 --eval-every 24 --save-every 4 --keep 9"
RUN = f"--preset char-gpt --attention-scale none {SIZES} {RATE} {RHYTHM}".split()


@pytest.mark.parametrize(
    ("backend", "threads"),
    [
        pytest.param("torch", ALL_THREADS, marks=pytest.mark.slow),
        pytest.param("jax", ALL_THREADS, marks=pytest.mark.slow),
        pytest.param("torch", 1, marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param("jax", 1, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_repeated_stopped_and_killed_runs_are_equal(tmp_path, backend, threads):
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    env = environment(threads)

    def new(name: str) -> list[str]:
        where = ["--backend", backend, "--data", str(text), "--run-dir", str(tmp_path / name)]
        return ["train.py", *RUN, *where]

    def resume(name: str) -> None:
        done = run("train.py", "--resume", str(tmp_path / name), env=env)
        assert done.returncode == 0, done.stderr

    for name, more in {"whole": [], "again": [], "stopped": ["--stop-after", "7"]}.items():
        done = run(*new(name), *more, env=env)
        assert done.returncode == 0, done.stderr
    resume("stopped")
    kill_after_a_checkpoint(new("killed"), tmp_path / "killed", env)
    resume("killed")
    for name in ("again", "stopped", "killed"):
        assert digests(tmp_path / name) == digests(tmp_path / "whole"), name
        assert curve(tmp_path / name) == curve(tmp_path / "whole"), name


def kill_after_a_checkpoint(arguments: list[str], path, env: dict[str, str]) -> None:
    """SIGKILL once there is a checkpoint after the first update."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=env, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while len(store.listed(path / "checkpoints")) < 2 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL
