"""What the tests of this tier share: a text, draws, and the runs that nobody disturbed."""

import random

import pytest

from parity_tests.survival.process import finished
from parity_tests.survival.runs import Left, Setting, undisturbed, write_text
from parity_tests.survival.trying import Trials


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("survival") / "text")


@pytest.fixture
def rng(request) -> random.Random:
    """The draws of this test: others by another --survival-seed."""
    return random.Random(f"{request.config.getoption('--survival-seed')} {request.node.name}")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """whole(setting, backend): what the undisturbed run leaves, which runs once."""
    found: dict[tuple[Setting, str], Left] = {}

    def run(setting: Setting, backend: str) -> Left:
        key = setting, backend
        if key not in found:
            found[key] = undisturbed(setting, tmp_path_factory.mktemp("whole") / "run", backend)
        return found[key]

    return run


@pytest.fixture
def trials():
    """trials(ARGUMENT, ...): what that command line comes to."""
    with Trials() as process:
        yield process


@pytest.fixture(scope="session")
def stopped(tmp_path_factory, data) -> Left:
    """A run that was asked to stop after update 9 of 12, with checkpoints of updates 3, 6 and 9."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    setting = Setting(data, steps=12)
    rhythm = ["--save-every", "3", "--log-every", "2", "--stop-after", "9"]
    finished(*setting.fresh(path, "torch", *rhythm))
    assert Left(path).steps == [3, 6, 9]
    return Left(path)


@pytest.fixture
def times(request) -> int:
    """How many files are mutated."""
    return request.config.getoption("--mutations")
