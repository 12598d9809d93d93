"""A training run that starts from a checkpoint: train.py --init-from."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from parity_tests.hub.small_llama import assert_same_arrays, random_arrays
from parity_tests.processes import run
from transformer_spec.config import GatedFeedForward, LayerNorm, Learned, ModelConfig, PreNorm

CHARACTERS = ModelConfig(
    arch="decoder",
    vocab_size=12,
    max_seq_len=7,
    d_model=8,
    d_ff=16,
    num_layers=1,
    num_heads=2,
    position=Learned(),
    norm=LayerNorm(),
    residual=PreNorm(),
    ffn=GatedFeedForward(),
)


class TestTrainingFromACheckpoint:
    @pytest.fixture
    def data(self, tmp_path) -> str:
        (tmp_path / "text.txt").write_text("abcdefghijkl" * 40)
        return str(tmp_path / "text.txt")

    @staticmethod
    def train(start: Path, data: str, *more: str):
        preset = ["--preset", "char-gpt", "--data", data, "--init-from", str(start)]
        return run("train.py", *preset, "--steps", "1", *more)

    @staticmethod
    def save(path: Path, tokenizer: dict | None = None, **changes: object) -> dict[str, np.ndarray]:
        """A run's directory with weights in bfloat16."""
        model = replace(CHARACTERS, **changes)
        arrays = random_arrays(model)
        path.mkdir()
        save_file(arrays, path / "model.safetensors")
        raw = {"model": model.to_dict(), "tokenizer": tokenizer}
        (path / "config.json").write_text(json.dumps(raw))
        return arrays

    @pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
    def test_its_weights_are_where_the_run_begins(self, tmp_path, data, backend):
        """A rate of 1e-30 changes no float32."""
        arrays = self.save(tmp_path / "start")
        out = ["--backend", backend, "--run-dir", str(tmp_path / "run")]
        done = self.train(tmp_path / "start", data, *out, "--learning-rate", "1e-30")
        assert done.returncode == 0, done.stderr
        found = load_file(tmp_path / "run" / "model.safetensors")
        assert_same_arrays(
            found, {name: array.astype(np.float32) for name, array in arrays.items()}
        )
        raw = json.loads((tmp_path / "run" / "config.json").read_text())
        assert ModelConfig.from_dict(raw["model"]) == CHARACTERS
        assert raw["init_from"] == str(tmp_path / "start")

    @pytest.mark.parametrize(
        ("saved", "more", "message"),
        [
            ({"vocab_size": 11}, [], "its vocab_size is 11, not 12"),
            ({}, ["--max-seq-len", "5"], "its max_seq_len is 7, not 5"),
            (
                {"tokenizer": {"type": "characters", "characters": "bcdefghijklm"}},
                [],
                "other characters",
            ),
            ({}, ["--init-from", "nothing"], "nothing: does not exist"),
        ],
    )
    def test_one_that_does_not_fit_is_refused(self, tmp_path, data, saved, more, message):
        self.save(tmp_path / "start", **saved)
        done = self.train(tmp_path / "start", data, "--run-dir", str(tmp_path / "run"), *more)
        assert done.returncode == 2, done.stdout
        assert len(done.stderr.splitlines()) == 1
        assert message in done.stderr
        assert not (tmp_path / "run").exists()
