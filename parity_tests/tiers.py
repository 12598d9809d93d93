"""Tiers of tests that are left out unless `pytest -m TIER` asks for them; figures end their run."""

from collections import defaultdict
from typing import Any

import pytest


class Tier:
    """A plugin of pytest that leaves a tier out, or collects its figures and shows them as a table.

    Args:
        marker: of its tests.
        title: over the table.
        corner: what a row is.
        columns: of the table.
    """

    def __init__(self, marker: str, title: str, corner: str, columns: tuple[str, ...]):
        self.marker, self.title, self.corner, self.columns = marker, title, corner, columns
        self.table: dict[str, dict[str, Any]] = defaultdict(dict)

    def record(self, row: str, column: str, text: Any) -> None:
        """A cell of the table."""
        assert column in self.columns, column
        self.table[row][column] = text

    def pytest_collection_modifyitems(self, config, items):
        if self.marker not in config.option.markexpr:
            ours = [item for item in items if item.get_closest_marker(self.marker)]
            config.hook.pytest_deselected(items=ours)
            items[:] = [item for item in items if item not in ours]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        """What a process measured joins the table."""
        for row, cells in getattr(node, "workeroutput", {}).get(self.marker, {}).items():
            self.table[row] |= cells

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[self.marker] = dict(self.table)

    def pytest_terminal_summary(self, terminalreporter):
        if not self.table:
            return
        terminalreporter.section(self.title)
        terminalreporter.write_line("| " + " | ".join((self.corner, *self.columns)) + " |")
        terminalreporter.write_line("| --- " * (1 + len(self.columns)) + "|")
        for row in sorted(self.table):
            cells = (str(self.table[row].get(column, "-")) for column in self.columns)
            terminalreporter.write_line("| " + " | ".join((row, *cells)) + " |")
