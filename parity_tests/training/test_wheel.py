"""The wheel, without the clone: its names, and that it trains, imports and compares."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from parity_tests.processes import ROOT
from parity_tests.training.test_train import TINY_SORT

NAMES = {
    "flax_transformer",
    "parity",
    "torch_reference",
    "transformer_hub",
    "transformer_spec",
    "transformer_train.py",
    "transformer_training",
}
SCRIPTS = {
    "transformer-hub = transformer_hub.__main__:main",
    "transformer-train = transformer_train:script",
}
MODULES = """
import flax.linen as nn
from torch import nn as tnn


def build_torch():
    return tnn.Linear(5, 3).eval()


def build_flax():
    return nn.Dense(3)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), "."]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel; its dependencies are those of the one that runs this test."""
    path = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    scheme = {"base": str(path), "platbase": str(path)}
    target = Path(sysconfig.get_path("purelib", "venv", scheme))
    install = ["install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    # Of an editable install, the path of the clone is in a .pth of its own, which is not read here.
    (target / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return path


def run(installed: Path, cwd: Path, *arguments: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    python = installed / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = subprocess.run(
        [str(python), *arguments], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def test_it_has_no_name_that_belongs_to_everybody(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
        scripts = archive.read(next(n for n in archive.namelist() if n.endswith("points.txt")))
    assert {name for name in names if not name.endswith(".dist-info")} == NAMES
    assert set(scripts.decode().splitlines()[1:]) == SCRIPTS


def test_it_trains_imports_and_compares_without_the_clone(installed, tmp_path):
    where = run(installed, tmp_path, "-c", "import transformer_train as t; print(t.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    train = ["-c", "import transformer_train as t; raise SystemExit(t.script())"]
    out = run(installed, tmp_path, *train, *TINY_SORT, "--steps", "3", "--run-dir", "run")
    assert "saved in run" in out
    assert "is finished: all 3 updates are done" in run(
        installed, tmp_path, *train, "--resume", "run"
    )
    assert "import" in run(installed, tmp_path, "-m", "transformer_hub", "--help")
    assert "parameters" in run(installed, tmp_path, "-m", "transformer_hub", "inspect", "run")
    curves = ["-m", "transformer_training.curves", "run", "run", "--out", "none"]
    assert "largest difference" in run(installed, tmp_path, *curves)
    (tmp_path / "mine.py").write_text(MODULES)
    compare = ["-m", "parity", "compare", "mine.py:build_torch", "mine.py:build_flax"]
    assert run(installed, tmp_path, *compare, "--inputs", "2x7x5")
