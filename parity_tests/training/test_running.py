"""A run's directory: one run at a time, records that continue, and what may be resumed."""

import json
import shutil
from dataclasses import replace

import pytest

from parity_tests.small_runs import curve, few_rows, newest, run_part, small_task
from torch_reference.training import Trainer
from transformer_spec.fields import ConfigError
from transformer_spec.files import CheckpointError
from transformer_spec.schedules import WarmupCosine
from transformer_training import command_line
from transformer_training.checkpoints import store
from transformer_training.runs import resuming
from transformer_training.runs.directory import RunDirectory
from transformer_training.tasks import make_task
from transformer_training.tasks.language_model import read_text


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    few_rows(monkeypatch)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of torch that was stopped after 5 of 10 updates, with checkpoints at 3, 4 and 5."""
    task, config = small_task("char-gpt", save_every=1)
    trainer = Trainer(task.model, config)
    path = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        few_rows(monkeypatch)
        assert run_part(path, trainer, task, config, backend="torch", stop_after=5) == 0
    return path, trainer, task, config


@pytest.fixture
def run(stopped, tmp_path):
    """A copy of it."""
    path, *rest = stopped
    return shutil.copytree(path, tmp_path / "run"), *rest


def steps(path) -> list[int | None]:
    return [store.step_of(p) for p in store.listed(path / "checkpoints")]


class TestOneRunAtATime:
    def test_a_second_start_and_a_second_resume_are_refused(self, tmp_path):
        first = RunDirectory(str(tmp_path / "run"), "run")
        first.lock()
        for resume in (False, True):
            second = RunDirectory(str(tmp_path / "run"), "run", resume)
            with pytest.raises(ConfigError, match=r"run_dir: .*/run is in use by a run that has"):
                second.lock()
        first.unlock()
        second.lock()
        second.unlock()

    def test_who_comes_too_late_finds_another_run(self, tmp_path):
        """Both looked at an empty directory; the first has ended before the second locks it."""
        first, second = (RunDirectory(str(tmp_path / "run"), "run") for _ in range(2))
        first.lock()
        first.save_config({})
        first.unlock()
        with pytest.raises(ConfigError, match="already holds another run"):
            second.lock()

    def test_a_lock_alone_is_an_empty_directory(self, tmp_path):
        for _ in range(2):
            directory = RunDirectory(str(tmp_path / "run"), "run")
            directory.lock()
            directory.unlock()

    def test_a_config_half_written_is_no_run_yet(self, tmp_path):
        """Of a run that begins, which holds the lock; or of one that was killed there."""
        first = RunDirectory(str(tmp_path / "run"), "run")
        first.lock()
        (first.path / "config.json.partial").write_text("{")
        with pytest.raises(ConfigError, match="in use by a run that has not ended"):
            RunDirectory(str(first.path), "run").lock()
        first.unlock()
        second = RunDirectory(str(first.path), "run")
        second.lock()
        second.save_config({})
        assert sorted(p.name for p in second.path.iterdir()) == [".lock", "config.json"]


class TestRecords:
    @pytest.mark.parametrize("torn", [b'{"step": 9, "lo', b'\xff{"step"', b"[]\n", b"null\n"])
    def test_what_came_after_the_checkpoint_and_what_is_torn_are_dropped(self, tmp_path, torn):
        directory = RunDirectory(str(tmp_path), "run")
        records = [{"step": n, "sample": "a\u2028b"} for n in (1, 3, 5)]
        for record in records:
            directory.log(record)
        with open(tmp_path / "metrics.jsonl", "ab") as file:
            file.write(torn)
        assert directory.rewind(2) == 0
        assert directory.records() == records[:2]
        assert directory.count == 2
        directory.log({"step": 4})
        assert [r["step"] for r in directory.records()] == [1, 3, 4]

    def test_what_is_lost_is_counted(self, tmp_path):
        directory = RunDirectory(str(tmp_path), "run")
        assert directory.rewind(2) == 2
        directory.log({"step": 1})
        (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": damaged}\n{"step": 3}\n')
        assert directory.rewind(3) == 1
        assert [r["step"] for r in directory.records()] == [1, 3]


class TestResuming:
    def test_the_one_before_a_damaged_one_is_used(self, run, capsys):
        path, trainer, task, config = run
        (path / "checkpoints" / "step-00000005" / "params.safetensors").write_bytes(b"damaged")
        (path / "checkpoints" / "step-00000007.partial").mkdir()
        (path / "model.safetensors.partial").write_bytes(b"half")
        assert run_part(path, trainer, task, config, resume=True) == 0
        printed = capsys.readouterr().out
        assert "step-00000005/params.safetensors: damaged: 7 bytes, not" in printed
        assert "resuming after update 4, from" in printed
        assert steps(path) == [8, 9, 10]
        left = {p.name for p in (path / "checkpoints").iterdir()}
        assert left == {"step-00000005.damaged", "step-00000008", "step-00000009", "step-00000010"}
        assert not (path / "model.safetensors.partial").exists()
        assert [r["step"] for r in curve(path)] == [1, 3, 5, 6, 9, 10]

    def test_without_a_whole_checkpoint_nothing_is_resumed(self, run):
        path, trainer, task, config = run
        for checkpoint in store.listed(path / "checkpoints"):
            (checkpoint / "checkpoint.json").unlink()
        with pytest.raises(
            CheckpointError, match="resume: .*: none of its checkpoints can be used"
        ):
            run_part(path, trainer, task, config, resume=True)
        assert steps(path) == [3, 4, 5]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"learning_rate": 0.5}, "config.json has learning_rate 0.5 where it was trained with"),
            ({"seed": 1}, "config.json has seed 1 where"),
            ({"steps": 4}, "steps: 4 is not usable; the run is at update 5"),
            ({"steps": None, "epochs": 1}, None),
            ({"compile": True, "keep": 1, "save_every": 2, "log_every": 1, "eval_every": 2}, None),
        ],
    )
    def test_what_may_change_and_what_may_not(self, run, changes, message):
        path, _, task, config = run
        directory = RunDirectory(str(path), "run", resume=True)
        changed = replace(config, **changes)
        if message is None:
            assert resuming.newest(directory, task, changed, print).manifest.step == 5
        else:
            with pytest.raises(ConfigError, match=message):
                resuming.newest(directory, task, changed, print)

    def test_other_data_is_refused(self, run, tmp_path):
        path, _, task, config = run
        text = tmp_path / "text"
        text.write_text("".join(task.tokenizer.characters) * 30)
        other = make_task(task.model, replace(config, data=str(text)))
        about = newest(path, task, config).manifest
        with pytest.raises(ConfigError, match="data: not what .* was trained on: sha256"):
            resuming.check_belongs(about, path, other, config)

    def test_the_same_text_may_lie_elsewhere(self, run, tmp_path):
        path, trainer, task, config = run
        text = tmp_path / "moved"
        text.write_text(read_text(config.data), encoding="utf-8")
        moved = replace(config, data=str(text))
        assert run_part(path, trainer, make_task(task.model, moved), moved, resume=True) == 0

    def test_a_schedule_that_knows_its_end_keeps_it(self, run):
        path, _, task, config = run
        schedule = {"schedule": WarmupCosine(warmup_steps=2)}
        about = newest(path, task, config).manifest
        about = replace(about, train=replace(config, **schedule).to_dict())
        for end, refused in ((10, False), (11, True)):
            longer = replace(config, steps=end, **schedule)
            if refused:
                with pytest.raises(ConfigError, match="steps: cannot change under WarmupCosine"):
                    resuming.check_length(about, task, longer)
            else:
                resuming.check_length(about, task, longer)

    def test_fewer_to_keep_make_room_at_once(self, run):
        path, trainer, task, config = run
        run_part(path, trainer, task, replace(config, keep=1), resume=True, stop_after=6)
        assert steps(path) == [5, 6]  # 5 is the best

    def test_a_finished_run_is_known_and_can_be_prolonged(self, run):
        path, trainer, task, config = run
        directory = RunDirectory(str(path), "run", resume=True)

        def finished(config) -> bool:
            total = config.total_steps(task.steps_per_epoch)
            return resuming.is_finished(directory, newest(path, task, config), task, total)

        assert not finished(config)
        assert run_part(path, trainer, task, config, resume=True) == 0
        assert finished(config)
        longer = replace(config, steps=12)
        assert not finished(longer)
        assert run_part(path, trainer, task, longer, resume=True) == 0
        assert finished(longer)
        (path / "model.safetensors").write_bytes(b"of before")
        assert not finished(longer)


class TestCommandLine:
    @pytest.fixture
    def stored(self, tmp_path):
        """What a run leaves of its config."""
        task, config = small_task("char-gpt")
        content = {"backend": "torch", "preset": "char-gpt", "init_from": None, "tokenizer": None}
        content |= {"model": task.model.to_dict(), "train": config.to_dict()}
        (tmp_path / "config.json").write_text(json.dumps(content))
        return str(tmp_path), task, config

    def refused(self, capsys, *argv: str) -> str:
        with pytest.raises(SystemExit) as end:
            command_line.parse(argv)
        assert end.value.code == 2
        line = capsys.readouterr().err
        assert len(line.splitlines()) == 1
        return line

    def test_the_runs_own_config_counts(self, stored):
        path, task, config = stored
        options, model, train = command_line.parse(["--resume", path])
        assert (model, train) == (task.model, config)
        assert (options.backend, options.preset) == ("torch", "char-gpt")
        more = ["--backend", "jax", "--steps", "20", "--keep", "1", "--stop-after", "12"]
        options, _, train = command_line.parse(["--resume", path, "--data", "x", *more])
        assert (options.backend, options.stop_after) == ("jax", 12)
        assert train == replace(config, steps=20, keep=1, data="x")
        assert command_line.parse(["--resume", path, "--epochs", "2"])[2].steps is None

    @pytest.mark.parametrize(
        "flag",
        ["--d-model 16", "--seed 1", "--preset sort", "--init-from x", "--run-dir x"],
    )
    def test_a_flag_that_would_change_the_run_is_refused_by_name(self, stored, capsys, flag):
        line = self.refused(capsys, "--resume", stored[0], *flag.split())
        name = flag.split()[0]
        assert f"{name}: cannot change on --resume; what can is --backend, --stop-after" in line

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            ("--resume /no/such", "/no/such: does not exist"),
            ("--stop-after 0", "stop_after: 0 is not usable; it must be above 0"),
            ("--stop-after soon", "stop_after: 'soon' is not usable; it must be int"),
            ("--save-every 0", "save_every: 0 is not usable; it must be at least 1"),
            ("--keep 0", "keep: 0 is not usable; it must be at least 1"),
        ],
    )
    def test_mistakes(self, capsys, argv, message):
        assert message in self.refused(capsys, *argv.split())

    def test_a_directory_that_is_no_run(self, tmp_path, capsys):
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
        assert "is not that of a run: it has no backend" in self.refused(
            capsys, "--resume", str(tmp_path)
        )
