"""What the comparison says of a pair, and whether it is right."""

import io
import json
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any

from parity.cli import main
from parity_tests.pairs.table import Pair

STATUS = {0: "equal", 1: "different", 2: "could not compare"}


@dataclass(frozen=True)
class Answer:
    """What came of one command.

    Args:
        verdict: "equal", "different" or "could not compare", by the exit status.
        faults: as the JSON report has them.
        message: what was written to stderr.
    """

    verdict: str
    faults: list[dict[str, Any]]
    message: str
    seconds: float

    def lines(self, pair: Pair) -> set[int]:
        """The lines of the pair's own file at which faults are placed."""
        places = [place for fault in self.faults for place in fault["places"]]
        return {p["line"] for p in places if p["file"] and p["file"].endswith(pair.path.name)}

    def causes(self, pair: Pair) -> list[str]:
        """What is said of faults that are placed right, or of all where no line holds the fault."""
        if self.verdict == STATUS[2]:
            return [self.message]
        right = pair.marked_lines() if pair.placed else None
        return [
            fault["cause"]
            for fault in self.faults
            if fault["cause"]
            and (right is None or right & {place["line"] for place in fault["places"]})
        ]

    def placed(self, pair: Pair) -> bool:
        return not pair.placed or bool(self.lines(pair) & pair.marked_lines())

    def named(self, pair: Pair) -> bool:
        causes = self.causes(pair)
        return any(re.search(pair.cause, c, re.IGNORECASE | re.DOTALL) for c in causes)


@cache
def ask(pair: Pair) -> Answer:
    """Run the user's command in this process."""
    out, err = io.StringIO(), io.StringIO()
    start = time.perf_counter()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([*pair.command(), "--json"])
        except SystemExit as stop:
            status = int(stop.code or 0)
    seconds = time.perf_counter() - start
    report = json.loads(out.getvalue()) if status in (0, 1) else {"faults": []}
    return Answer(STATUS[status], report["faults"], err.getvalue(), seconds)
