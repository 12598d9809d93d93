"""Programs in processes of their own: what a user types, without pytest around it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIXED = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}


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
