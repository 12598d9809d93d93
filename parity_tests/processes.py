"""Programs in processes of their own: what a user types, without pytest around it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIXED = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
ALL_THREADS = max(2, os.cpu_count() or 2)


def environment(threads: int) -> dict[str, str]:
    """That of a process whose frameworks use so many threads.

    torch's are OpenMP's. XLA has a pool of one for each core, and is limited to a single one or not
    at all. Threads sleep while they wait: a busy machine has other work for their cores.
    """
    one = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"} if threads == 1 else {}
    openmp = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    return dict(os.environ) | FIXED | openmp | one


def run(*arguments: str, env: dict[str, str] | None = None, cwd: Path = ROOT):
    """`python ARGUMENTS`, finished, with its output."""
    environment = os.environ | FIXED | (env or {})
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd
    )


def run_python(program: str) -> str:
    """The output of a Python program that must succeed."""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout
