"""The tier of published weights: run by `pytest -m weights` alone; its figures end the run."""

from collections import defaultdict

import pytest

FIGURES = pytest.StashKey[dict[str, dict[str, str]]]()
COLUMNS = (
    "twins, float64",
    "original, float64",
    "float32: flax / torch",
    "known answer",
    "there and back",
    "opened by transformers",
)


def pytest_configure(config):
    config.stash[FIGURES] = defaultdict(dict)


def pytest_collection_modifyitems(config, items):
    if "weights" not in config.option.markexpr:
        weights = [item for item in items if item.get_closest_marker("weights")]
        config.hook.pytest_deselected(items=weights)
        items[:] = [item for item in items if item not in weights]


@pytest.fixture(scope="session")
def figure(request):
    """record(family, column, text): a cell of the table."""
    table = request.config.stash[FIGURES]

    def record(family, column, text):
        assert column in COLUMNS, column
        table[family][column] = text

    return record


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """What a process measured joins the table."""
    for family, cells in getattr(node, "workeroutput", {}).get("figures", {}).items():
        node.config.stash[FIGURES][family] |= cells


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["figures"] = dict(session.config.stash[FIGURES])


def pytest_terminal_summary(terminalreporter, config):
    table = config.stash[FIGURES]
    if not table:
        return
    terminalreporter.section("published weights: largest difference, norm-wise, and known answers")
    terminalreporter.write_line("| " + " | ".join(("model", *COLUMNS)) + " |")
    terminalreporter.write_line("| --- " * (1 + len(COLUMNS)) + "|")
    for family in sorted(table):
        cells = (table[family].get(column, "-") for column in COLUMNS)
        terminalreporter.write_line("| " + " | ".join((family, *cells)) + " |")
