"""The tier of survival: run by `pytest -m survival` alone; its figures end the run."""

import sys
import time

import pytest

from parity_tests.tiers import Tier

COLUMNS = ("times", "outcome", "seconds")
TIER = Tier("survival", "survival: what was done to runs, and what became of them", "done", COLUMNS)
OPTIONS = {
    "kills": (100, "how often runs are killed by SIGKILL at a random moment, and resumed"),
    "meetings": (10, "how often two runs begin in one directory at the same moment, of each kind"),
    "damages": (50, "how often each file of a checkpoint is truncated, and has a byte flipped"),
    "mutations": (300, "how many mutated configs are tried, and how many mutated weights"),
    "survival-seed": (0, "which moments, places and mutations are drawn"),
}


def pytest_addoption(parser):
    group = parser.getgroup("survival", "the tier of survival, -m survival")
    for name, (default, text) in OPTIONS.items():
        kind = "S" if name.endswith("seed") else "N"
        text = f"{text} (default: {default})"
        group.addoption(f"--{name}", type=int, default=default, metavar=kind, help=text)


def pytest_configure(config):
    config.pluginmanager.register(TIER, "survival")


@pytest.fixture
def outcome(request):
    """outcome(row, times, text): a row of the table, with the seconds since the test began."""
    begin = time.monotonic()

    def record(row, times, text):
        cells = (times, text, f"{time.monotonic() - begin:.0f}")
        for column, cell in zip(COLUMNS, cells, strict=True):
            TIER.record(row, column, cell)

    return record


@pytest.fixture
def progress(request):
    """progress(text): a line on the terminal while the test is running."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text):
        with capture.global_and_fixture_disabled():
            print(f"  {text}", file=sys.stderr, flush=True)

    return say
