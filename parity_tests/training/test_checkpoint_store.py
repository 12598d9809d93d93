"""Checkpoints on disk: whole or absent, and every flipped byte is found."""

import errno
import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transformer_spec.files import CheckpointError
from transformer_spec.parameters import parameter_shapes
from transformer_spec.presets import PRESETS
from transformer_spec.state import NamedState
from transformer_training.checkpoints import durable, manifest, store
from transformer_training.checkpoints.durable import SaveError
from transformer_training.checkpoints.manifest import Manifest
from transformer_training.runs.directory import RunDirectory
from transformer_training.runs.meter import Meter, NotFiniteError
from transformer_training.runs.saving import Saver
from transformer_training.tasks import make_task
from verification.twins.hostile import hostile_config

CONFIG = hostile_config(num_layers=1)
SHAPES = parameter_shapes(CONFIG)
FILES = {"checkpoint.json"} | {
    f"{name}.safetensors" for name in ("params", "first_moment", "second_moment", "history")
}


def state(step: int = 3, dtype: str = "float32") -> NamedState:
    rng = np.random.default_rng(step)
    groups = [{n: rng.normal(size=s).astype(dtype) for n, s in SHAPES.items()} for _ in range(3)]
    return NamedState(step, np.array([1, 2**32 - 1], np.uint32), *groups)


def history(step: int = 3) -> dict[str, np.ndarray]:
    return {name: np.arange(step) / 7 for name in ("losses", "accuracies")}


def about(step: int = 3, **changes) -> Manifest:
    train = PRESETS["char-gpt"].train.to_dict()
    given = {"fingerprint": "f" * 64, "backend": "jax", "model": CONFIG.to_dict(), "train": train}
    counts = {"step": step, "next_update": step + 1, "epoch": 1, "records": 2, "recorded": step}
    return Manifest(**(given | counts | {"dropout_key": [1, 2**32 - 1], "seconds": 1.5} | changes))


@pytest.fixture
def written(tmp_path) -> Path:
    return store.write(tmp_path, about(), state(), history())


def read(path: Path):
    return store.read(path, SHAPES, "float32")


def test_what_is_written_is_read(written):
    assert written.name == "step-00000003"
    assert {path.name for path in written.iterdir()} == FILES
    found, expected = read(written), state()
    assert found.manifest == replace(about(), files=found.manifest.files)
    assert found.state.step == 3
    np.testing.assert_array_equal(found.state.dropout_key, expected.dropout_key)
    for group, named in expected.groups().items():
        assert found.state.groups()[group].keys() == named.keys()
        for name, array in named.items():
            np.testing.assert_array_equal(found.state.groups()[group][name], array)
    np.testing.assert_array_equal(found.history["losses"], np.arange(3) / 7)


def test_a_formula_of_draws_without_a_name_is_not_written(tmp_path):
    """As before formulas had names, whose checkpoints must still be read."""
    for step, draws in enumerate((None, "AS241"), start=3):
        path = store.write(tmp_path, about(step, draws=draws), state(step), history(step))
        assert ("draws" in json.loads((path / "checkpoint.json").read_text())) == bool(draws)
        assert read(path).manifest.draws == draws


def test_checkpoint_json_says_what_a_person_may_want_to_know(written):
    content = json.loads((written / "checkpoint.json").read_text())
    assert content["next_update"] == 4
    assert content["random"] == "threefry2x32"
    assert set(content["versions"]) >= {"python", "numpy", "jax", "flax", "optax", "torch"}
    assert {entry["name"] for entry in content["files"]} == FILES - {"checkpoint.json"}
    assert all((written / e["name"]).stat().st_size == e["bytes"] for e in content["files"])


def test_a_flipped_bit_of_checkpoint_json_is_found(written):
    path = written / "checkpoint.json"
    whole = path.read_bytes()
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=r"checkpoint\.json: (damaged|format)"):
            manifest.read(written)
    path.write_bytes(whole.replace(b"\n ", b"\n\t"))
    with pytest.raises(CheckpointError, match="not laid out as it was written"):
        manifest.read(written)
    path.write_bytes(whole)
    manifest.read(written)


@pytest.mark.parametrize("name", sorted(FILES - {"checkpoint.json"}))
def test_a_file_that_changed_is_named(written, name):
    path = written / name
    whole = path.read_bytes()
    for place in (0, 9, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=rf"{name}: damaged: sha256 \w+, not \w+"):
            read(written)
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=rf"{name}: damaged: [\d,]+ bytes, not [\d,]+"):
        read(written)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{name}: damaged: no such file"):
        read(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"format": "orbax"}, "format 'orbax', version 1; .* reads"),
        (
            lambda content: content | {"version": 2, "new": 1},
            "version 2; .* reads 'named safetensors'",
        ),
        (lambda content: content | {"random": "philox"}, "random: 'philox' .* threefry2x32"),
        (lambda content: content | {"next_update": 9}, "next_update: 9 .* step 3"),
        (lambda content: content | {"dropout_key": [1]}, "dropout_key: .* two numbers"),
        (lambda content: content | {"seconds": "long"}, "seconds: 'long' .* float"),
        (lambda content: content | {"more": 1}, "more: no such field"),
        (lambda content: content | {"files": [{"name": "../x"}]}, "files: .* a name beside it"),
    ],
)
def test_a_checkpoint_json_of_another_kind_is_refused(written, change, message):
    """Its own sha256 fits: what it says is not what is known here."""
    content = change(json.loads((written / "checkpoint.json").read_text()))
    content.pop("sha256")
    text = json.dumps(content | {"sha256": manifest._sha256(content)}, indent=2) + "\n"
    (written / "checkpoint.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        manifest.read(written)


def test_a_checkpoint_under_another_name_is_refused(written):
    with pytest.raises(CheckpointError, match="step-00000004: damaged: it holds step 3"):
        read(written.rename(written.with_name("step-00000004")))


def test_another_models_state_is_refused_and_so_is_one_that_is_not_finite(written, tmp_path):
    with pytest.raises(CheckpointError, match="params: parameters do not match: missing more"):
        store.read(written, SHAPES | {"more": (1,)}, "float32")
    with pytest.raises(CheckpointError, match="params: .* is float32.* must be float64"):
        store.read(written, SHAPES, "float64")
    bad = state(4)
    bad.second_moment["lm_head.weight"][0, 0] = np.inf
    path = store.write(tmp_path, about(4), bad, history(4))
    with pytest.raises(CheckpointError, match=r"second moment of lm_head\.weight is not finite"):
        read(path)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("at", ["write", "sync", "rename"])
def test_what_cannot_be_written_leaves_nothing(tmp_path, monkeypatch, error, at):
    store.write(tmp_path, about(), state(), history())

    def refuse(*_):
        raise OSError(error, "the reason")

    monkeypatch.setattr(durable, at, refuse)
    with pytest.raises(SaveError, match="step-00000004: cannot be written: the reason"):
        store.write(tmp_path, about(4), state(4), history(4))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]
    monkeypatch.undo()
    read(store.listed(tmp_path)[-1])


def test_a_checkpoint_is_written_over_one_of_before_a_return(written, tmp_path):
    (written / "params.safetensors").write_bytes(b"damaged")
    store.write(tmp_path, about(), state(), history())
    read(written)
    assert [path.name for path in tmp_path.iterdir()] == [written.name]


def test_the_newest_few_and_the_best_are_kept(tmp_path):
    for step in range(1, 8):
        store.write(tmp_path, about(step), state(step), history(step))
    store.prune(tmp_path, 2, best=3)
    assert [store.step_of(path) for path in store.listed(tmp_path)] == [3, 6, 7]


def test_what_was_not_written_to_the_end_is_no_checkpoint(written, tmp_path):
    (tmp_path / "step-00000009.partial").mkdir()
    (tmp_path / "step-00000009.partial" / "params.safetensors").write_bytes(b"half")
    assert store.listed(tmp_path) == [written]
    store.clean(tmp_path)
    assert list(tmp_path.iterdir()) == [written]


class TestSaver:
    @pytest.fixture
    def saver(self, tmp_path) -> Saver:
        task = make_task(PRESETS["char-gpt"].model, PRESETS["char-gpt"].train)
        return Saver(
            RunDirectory(str(tmp_path / "run"), "run"), "jax", task, PRESETS["char-gpt"].train
        )

    def steps(self, saver: Saver) -> list[int | None]:
        saver.wait()
        return [store.step_of(path) for path in store.listed(saver.directory.checkpoints)]

    def meter(self, step: int) -> Meter:
        return Meter.resume(history(step), step, 1.0)

    def test_the_caller_does_not_wait_for_the_disk(self, saver, monkeypatch):
        going, write = threading.Event(), store.write

        def slowly(*arguments):
            assert going.wait(60)
            return write(*arguments)

        monkeypatch.setattr(store, "write", slowly)
        saver.save(state(1), self.meter(1))
        assert not store.listed(saver.directory.checkpoints)
        saver.poll()
        going.set()
        saver.save(state(2), self.meter(2))  # waits for the first
        assert store.step_of(store.listed(saver.directory.checkpoints)[0]) == 1
        assert self.steps(saver) == [1, 2]

    def test_an_error_of_the_thread_is_raised_once(self, saver, monkeypatch):
        monkeypatch.setattr(durable, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        saver.save(state(1), self.meter(1))
        with pytest.raises(SaveError, match="step-00000001: cannot be written: full"):
            saver.wait()
        saver.poll()

    def test_a_bad_state_is_never_saved(self, saver):
        bad = state(1)
        bad.params["lm_head.weight"][0, 0] = np.nan
        with pytest.raises(NotFiniteError, match=r"lm_head\.weight is not finite after update 1"):
            saver.save(bad, self.meter(1))
        assert self.steps(saver) == []

    def test_the_best_stays(self, saver):
        losses = {1: 3.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 1.5, 6: 1.6}
        better = []
        for step, loss in losses.items():
            better.append(saver.is_best(step, loss))
            saver.save(state(step), self.meter(step), loss)
        assert better == [True, True, False, False, False, False]
        assert self.steps(saver) == [2, 4, 5, 6]
        last = manifest.read(store.listed(saver.directory.checkpoints)[-1])
        assert (last.eval_loss, last.best_step, last.best_eval_loss) == (1.6, 2, 1.0)
