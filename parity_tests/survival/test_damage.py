"""Checkpoints that something damaged: the file is named, and the one before it is used."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from parity_tests.survival.process import Process, finished
from parity_tests.survival.runs import Left, assert_equal, resumed, resumed_after

pytestmark = pytest.mark.survival

FILES = ("checkpoint.json", *(f"{name}.safetensors" for name in ("params", "first_moment")))
FILES += tuple(f"{name}.safetensors" for name in ("second_moment", "history"))


def truncated(file: Path, rng) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])


def flipped(file: Path, rng) -> None:
    """One byte of the file becomes another."""
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    file.write_bytes(content)


def missing(file: Path, rng) -> None:
    file.unlink()


def emptied(file: Path, rng) -> None:
    file.write_bytes(b"")


def of_another_step(file: Path, rng) -> None:
    shutil.copy(file.parent.with_name("step-00000006") / file.name, file)


def link_to_another_step(file: Path, rng) -> None:
    file.unlink()
    file.symlink_to(Path("..", "step-00000006", file.name))


def link_to_nothing(file: Path, rng) -> None:
    file.unlink()
    file.symlink_to("nothing")


def link_to_itself(file: Path, rng) -> None:
    file.unlink()
    file.symlink_to(file.name)


def directory(file: Path, rng) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path, rng) -> None:
    file.unlink()
    os.mkfifo(file)


def longer(file: Path, rng) -> None:
    file.write_bytes(file.read_bytes() + rng.randbytes(rng.randrange(1, 99)))


REPEATED = (truncated, flipped, longer)
ONCE = (missing, emptied, of_another_step, link_to_another_step, link_to_nothing)
ONCE += (link_to_itself, directory, pipe)


@pytest.fixture
def copy(stopped, tmp_path):
    """copy(): another copy of the stopped run, in place of the last one."""

    def make() -> Left:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return Left(Path(shutil.copytree(stopped.path, tmp_path / "copy", symlinks=True)))

    return make


def starts(trials, stopped) -> dict[int, dict]:
    """What a run that is resumed from each of the checkpoints starts from."""
    found = {}
    for step in stopped.steps:
        copy = shutil.copytree(stopped.path, stopped.path.with_name(f"to {step}"))
        for path in Left(copy).checkpoints:
            if int(path.name[-8:]) > step:
                shutil.rmtree(path)
        found[step] = trials("--resume", copy).start()
        assert found[step]["step"] == step
        shutil.rmtree(copy)
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_one_before_is_used(request, name, stopped, copy, trials, rng, outcome):
    """Whatever happened to a file of the newest."""
    expected, counts = starts(trials, stopped), Counter()
    times = request.config.getoption("--damages")
    for damage in REPEATED * times + ONCE:
        left = copy()
        file = left.path / "checkpoints" / "step-00000009" / name
        damage(file, rng)
        found = trials("--resume", left.path)
        assert found.start() == expected[6], damage.__name__
        first, *_, last = found.out.splitlines()
        # A whole checkpoint.json that says another step may as well lie in the wrong directory.
        wrong = name == "checkpoint.json" and "another_step" in damage.__name__
        assert first.startswith(f"{file.parent if wrong else file}: "), found.out
        assert first.endswith("; it is not used"), found.out
        assert last.startswith("resuming after update 6, from ")
        assert sorted(p.name for p in (left.path / "checkpoints").iterdir()) == [
            "step-00000003",
            "step-00000006",
            "step-00000009.damaged",
        ]
        counts[damage.__name__] += 1
    shown = f"{counts.total()}: " + ", ".join(
        f"{counts[d.__name__]} {d.__name__}" for d in REPEATED
    )
    outcome(f"damaged {name}", f"{shown}, {len(ONCE)} otherwise", "all found and named")


def test_the_newest_that_is_whole_is_used(stopped, copy, trials, rng):
    """Two of three are damaged; or two have changed places; or a stranger bears a name."""
    expected, left = starts(trials, stopped), copy()
    newest = left.path / "checkpoints" / "step-00000009"
    for path in (newest, newest.with_name("step-00000006")):
        flipped(path / rng.choice(FILES), rng)
    assert trials("--resume", left.path).start() == expected[3]
    left = copy()
    newest.rename(newest.with_name("other"))
    newest.with_name("step-00000006").rename(newest)
    newest.with_name("other").rename(newest.with_name("step-00000006"))
    found = trials("--resume", left.path)
    assert found.start() == expected[3]
    assert "step-00000009: damaged: it holds step 6; it is not used" in found.out
    left = copy()
    newest.with_name("step-00000012").write_text("no directory")
    newest.with_name("step-00000011").mkdir()
    newest.with_name("step-00000010").symlink_to("nothing")
    assert trials("--resume", left.path).start() == expected[9]


def test_a_link_to_what_was_written_is_as_good(stopped, copy, trials):
    expected, left = starts(trials, stopped), copy()
    file = left.path / "checkpoints" / "step-00000009" / "params.safetensors"
    file.rename(left.path / "elsewhere")
    file.symlink_to(left.path / "elsewhere")
    assert trials("--resume", left.path).start() == expected[9]


@pytest.mark.parametrize("name", FILES)
def test_without_another_it_is_one_clear_line(name, copy, trials, rng):
    for damage in (*REPEATED, missing, emptied, link_to_nothing, link_to_itself, directory, pipe):
        left = copy()
        for path in left.checkpoints[:-1]:
            shutil.rmtree(path)
        damage(left.checkpoints[0] / name, rng)
        found = trials("--resume", left.path)
        assert "none of its checkpoints can be used; start anew" in found.error()
        assert f"{left.checkpoints[0] / name}: " in found.out
        # Nothing was touched: somebody may know how to mend it.
        assert left.steps == [9]


def test_a_run_ends_as_if_nothing_had_been_damaged(stopped, copy, rng, progress, tmp_path):
    """From the command line, to the end."""
    reference = tmp_path / "reference"
    shutil.copytree(stopped.path, reference)
    finished(*resumed(reference))
    for name in rng.sample(FILES, 3):
        left = copy()
        flipped(left.path / "checkpoints" / "step-00000009" / name, rng)
        process = Process(*resumed(left.path))
        assert process.end() == 0, process.err
        assert resumed_after(process.out) == 6
        assert_equal(left, Left(reference))
        progress(f"{name}: damaged, and the end is the same")
