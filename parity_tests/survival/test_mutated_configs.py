"""Mutated JSON: it means what it says, or it is refused in one line. Nothing else, ever."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from parity_tests.survival.mutate import CHANGES, MUTATIONS, places
from parity_tests.survival.tally import BEFORE, EQUAL, Tally, cases, copied, equal_if
from transformer_spec.config import Causal, FeedForward, LayerNorm, ModelConfig
from transformer_spec.fields import Variant
from transformer_training.checkpoints import manifest
from transformer_training.runs.resuming import CHANGEABLE

pytestmark = pytest.mark.survival

# What a field is where a config does not name it.
DEFAULTS = {
    f.name: f.default.to_dict() if isinstance(f.default, Variant) else f.default
    for kind in (ModelConfig, LayerNorm, FeedForward, Causal)
    for f in dataclasses.fields(kind)
}


def test_the_config_of_a_run_that_goes_on(times, stopped, trials, rng, outcome, tmp_path):
    """Every checkpoint holds the config too: none that says another update is accepted."""
    content = json.loads((stopped.path / "config.json").read_text())
    expected = trials("--resume", copied(stopped.path, tmp_path / "run")).start()
    tally = Tally()
    for name, mutate in cases(times, MUTATIONS):
        path = copied(stopped.path, tmp_path / "run")
        mutated = mutate(content, rng)
        (path / "config.json").write_bytes(mutated)
        found = trials("--resume", path)
        tally.add(found, name, mutated, lambda start: equal_if(bound(start) == bound(expected)))
    outcome("mutated config.json, --resume", times, tally.shown(trials))


def test_the_config_of_weights_to_start_from(times, data, stopped, trials, rng, outcome, tmp_path):
    """What it says is what is trained, with the weights as they are."""
    (tmp_path / "start").mkdir()
    weights = stopped.path / "model.safetensors"
    shutil.copy(weights, tmp_path / "start")
    config = tmp_path / "start" / "config.json"
    content = json.loads((stopped.path / "config.json").read_text())
    config.write_text(json.dumps(content))
    arguments = ["--preset", "char-gpt", "--data", data, "--init-from", tmp_path / "start"]
    arguments += ["--run-dir", tmp_path / "run"]
    expected, tally = trials(*arguments).start(), Tally()
    for name, mutate in cases(times, MUTATIONS):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        mutated = mutate(content, rng)
        config.write_bytes(mutated)
        found = trials(*arguments)

        def fits(start, mutated=mutated):
            said = json.loads(mutated)["model"]
            same = says(said, start["model"]) and start["weights"] == expected["weights"]
            return equal_if(same)

        tally.add(found, name, mutated, fits)
    outcome("mutated config.json, --init-from", times, tally.shown(trials))


def bound(start: dict) -> dict:
    """What a run starts from, without what it may change on its return."""
    return start | {"train": {k: v for k, v in start["train"].items() if k not in CHANGEABLE}}


def says(said: dict, model: dict) -> bool:
    """Whether a model is what is said of it, and the default where nothing is."""
    for name, value in model.items():
        if isinstance(value, dict) and isinstance(said.get(name), dict):
            if not says(said[name], value):
                return False
        elif value != said.get(name, DEFAULTS.get(name)):
            return False
    return not set(said) - set(model)


@pytest.mark.parametrize("alike", [False, True], ids=["alone", "with config.json"])
def test_a_checkpoint_json_whose_hash_was_made_anew(
    alike, times, stopped, trials, rng, outcome, tmp_path
):
    """It is no accident then. What it says is used if it can be, or the checkpoint before it."""
    run_config = json.loads((stopped.path / "config.json").read_text())
    place = Path("checkpoints", "step-00000009", "checkpoint.json")
    content = json.loads((stopped.path / place).read_text())
    del content["sha256"]
    tally = Tally()
    for name, change in cases(times, CHANGES):
        path = copied(stopped.path, tmp_path / "run")
        mutated = change(content, rng)
        hashed = mutated | {"sha256": manifest._sha256(mutated)}
        (path / place).write_text(json.dumps(hashed, indent=2) + "\n")
        if alike:
            both = run_config | {k: mutated[k] for k in ("model", "train") if k in mutated}
            (path / "config.json").write_text(json.dumps(both))
        found = trials("--resume", path)
        tally.add(found, name, hashed, lambda start: {6: BEFORE, 9: EQUAL}.get(start["step"]))
    assert len(set(places(content))) > 40
    kind = "and config.json alike" if alike else "alone"
    outcome(f"mutated checkpoint.json {kind}, hash made anew", times, tally.shown(trials))
