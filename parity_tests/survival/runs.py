"""Runs small enough to be killed a hundred times, and what is left of them."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parity_tests.processes import environment
from parity_tests.small_runs import curve
from parity_tests.survival.process import TRAIN, finished
from transformer_spec.config import ModelConfig
from transformer_spec.parameters import parameter_shapes
from transformer_spec.train_config import TrainConfig
from transformer_training.checkpoints import load_arrays, store
from transformer_training.checkpoints.store import Saved
from transformer_training.runs.resuming import stored_config

# Sizes at which an update takes milliseconds, and dropout is on. Records come at odd updates.
SIZES = {"max-seq-len": 8, "d-model": 8, "num-heads": 2, "num-layers": 1}
RHYTHM = {"log-every": 7, "eval-every": 50, "save-every": 1}
# A schedule that started anew on --resume would show.
RATE = {"schedule": "InverseSqrt(warmup_steps=5)", "learning-rate": 0.02}
SMALL = {"preset": "char-gpt", "embed-dropout": 0.1} | SIZES | RATE | RHYTHM


@dataclass(frozen=True)
class Setting:
    """What is trained: a command line without the directory of the run.

    Args:
        data: the text.
        steps: updates.
        d_ff: how wide; a checkpoint has about 200 bytes of it.
        dtype: of arithmetic and parameters.
        batch_size: rows per update.
        threads: of torch.
    """

    data: Path
    steps: int
    d_ff: int = 16
    dtype: str = "float32"
    batch_size: int = 4
    threads: int = 1

    @property
    def env(self) -> dict[str, str]:
        return environment(self.threads)

    def fresh(self, path: Path, backend: str, *more: str) -> list[str]:
        """The arguments of a new run."""
        mine = {"d-ff": self.d_ff, "steps": self.steps, "dtype": self.dtype, "data": self.data}
        mine |= {"batch-size": self.batch_size}
        where = {"backend": backend, "run-dir": path}
        flags = [f"--{name}={value}" for name, value in (SMALL | mine | where).items()]
        return [TRAIN, *flags, *more]


def resumed(path: Path, *more: str) -> list[str]:
    """The arguments of a run that is resumed."""
    return [TRAIN, "--resume", str(path), *more]


def write_text(path: Path) -> Path:
    """Words of eight letters, in no order that could be learned."""
    letters = np.random.default_rng(0).choice(list("abcdefgh   "), 4000)
    path.write_text("".join(letters))
    return path


@dataclass(frozen=True)
class Left:
    """What a run left."""

    path: Path

    @property
    def checkpoints(self) -> list[Path]:
        return store.listed(self.path / "checkpoints")

    @property
    def steps(self) -> list[int]:
        return [step for p in self.checkpoints if (step := store.step_of(p)) is not None]

    @property
    def newest(self) -> int:
        """The step of the newest checkpoint; -1 where there is none."""
        return max(self.steps, default=-1)

    @cached_property
    def configs(self) -> tuple[ModelConfig, TrainConfig]:
        stored = stored_config(str(self.path))
        return ModelConfig.from_dict(stored["model"]), TrainConfig.from_dict(stored["train"])

    def verified(self) -> list[Saved]:
        """Every checkpoint, read to the last bit."""
        model, config = self.configs
        shapes = parameter_shapes(model)
        return [store.read(path, shapes, config.parameter_dtype) for path in self.checkpoints]

    @property
    def digests(self) -> dict[str, str]:
        """Of the final weights, and of all files of the last checkpoint: moments and losses too."""
        last = self.verified()[-1].manifest
        found = {entry["name"]: entry["sha256"] for entry in last.files}
        weights = (self.path / "model.safetensors").read_bytes()
        return found | {"model.safetensors": hashlib.sha256(weights).hexdigest()}

    @property
    def curve(self) -> list[dict[str, Any]]:
        return curve(self.path)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        return load_arrays(self.path / "model.safetensors")

    @property
    def losses(self) -> np.ndarray:
        return self.verified()[-1].history["losses"]


def undisturbed(setting: Setting, path: Path, backend: str) -> Left:
    """The same run, undisturbed."""
    finished(*setting.fresh(path, backend), env=setting.env)
    return Left(path)


def assert_equal(found: Left, expected: Left) -> None:
    """Bit for bit: weights, moments, losses, and every field of every record but the times."""
    assert found.digests == expected.digests
    assert found.curve == expected.curve
    assert len(found.curve) > 2


def resumed_after(out: str) -> int | None:
    """The update after which a run was resumed, by what it printed."""
    printed = re.search(r"resuming after update ([\d,]+), from", out)
    return int(printed[1].replace(",", "")) if printed else None
