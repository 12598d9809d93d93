"""Mutated weights: read as what they are, or refused in one line; no memory for a lie."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from parity_tests.survival.mutate_tensors import MUTATIONS, parts
from parity_tests.survival.tally import BEFORE, Tally, cases, copied, equal_if
from transformer_training.checkpoints import manifest

pytestmark = pytest.mark.survival


def content_of(mutated: bytes) -> dict[str, list]:
    """What a whole file holds, read by nothing but the rule of its format."""
    header, data = parts(mutated)
    header.pop("__metadata__", None)
    dtypes = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16"}
    return {
        name: [dtypes[e["dtype"]], e["shape"], data[slice(*e["data_offsets"])].hex()]
        for name, e in header.items()
    }


def test_weights_to_start_from(times, data, stopped, trials, rng, outcome, tmp_path):
    """What no hash protects is read as it is written: a bit of a weight is a weight."""
    start = tmp_path / "start"
    start.mkdir()
    shutil.copy(stopped.path / "config.json", start)
    whole = (stopped.path / "model.safetensors").read_bytes()
    arguments = ["--preset", "char-gpt", "--data", data, "--init-from", start]
    arguments += ["--run-dir", tmp_path / "run"]
    tally = Tally()
    for name, mutate in cases(times, MUTATIONS):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        mutated = mutate(whole, rng)
        (start / "model.safetensors").write_bytes(mutated)
        found = trials(*arguments)

        def judge(start, mutated=mutated):
            return equal_if(start["weights"] == content_of(mutated))

        tally.add(found, name, mutated, judge)
    outcome("mutated model.safetensors, --init-from", times, tally.shown(trials))


@pytest.mark.parametrize("hashed", [False, True], ids=["as it was", "made anew"])
def test_a_file_of_a_checkpoint(hashed, times, stopped, trials, rng, outcome, tmp_path):
    """Where the hash is as it was, the checkpoint before is used; else what can be."""
    place = Path("checkpoints", "step-00000009")
    groups = ("params", "first_moment", "second_moment", "history")
    whole = {n: (stopped.path / place / f"{n}.safetensors").read_bytes() for n in groups}
    tally = Tally()
    for name, mutate in cases(times, MUTATIONS):
        path, group = copied(stopped.path, tmp_path / "run"), rng.choice(groups)
        mutated = mutate(whole[group], rng)
        file = path / place / f"{group}.safetensors"
        file.write_bytes(mutated)
        if hashed:
            hash_anew(file)
        found = trials("--resume", path)
        params = whole["params"] if group != "params" else mutated

        def judge(start, params=params):
            if start["step"] == 6:
                return BEFORE
            return equal_if(hashed and start["weights"] == content_of(params))

        tally.add(found, name, mutated, judge)
    row = f"mutated file of a checkpoint, hash {'made anew' if hashed else 'as it was'}"
    outcome(row, times, tally.shown(trials))


def hash_anew(file: Path) -> None:
    """checkpoint.json says of the file what it is now."""
    path = file.with_name("checkpoint.json")
    content = json.loads(path.read_text())
    content.pop("sha256")
    for entry in content["files"]:
        if entry["name"] == file.name:
            entry["bytes"] = file.stat().st_size
            entry["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    text = json.dumps(content | {"sha256": manifest._sha256(content)}, indent=2)
    path.write_text(text + "\n")
