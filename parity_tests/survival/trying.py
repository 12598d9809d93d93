"""Command lines handed to the process of `trials`, and what may come of them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from parity_tests.processes import FIXED, ROOT
from parity_tests.survival.process import one_line


@dataclass(frozen=True)
class Outcome:
    """What one command line came to.

    Args:
        status: of the exit; None where the first update would come now.
        out, err: what was printed.
        found: what that update would start from.
        grown: the highest memory of the process so far, above that of its first trial, in bytes.
    """

    status: int | None
    out: str
    err: str
    found: dict[str, Any] | None
    grown: int

    @property
    def refused(self) -> bool:
        """Whether it is one line on stderr, with exit status 2."""
        clean = self.status == 2 and self.err.startswith("train.py: error: ")
        return clean and len(self.err.splitlines()) == 1

    def error(self) -> str:
        """The line it is refused with."""
        assert self.status == 2, (self.status, self.out, self.err)
        return one_line(self.err)

    def start(self) -> dict[str, Any]:
        """What the first update would start from, and no word on stderr."""
        assert self.status is None, (self.status, self.out, self.err)
        assert self.err == ""
        assert self.found is not None
        return self.found


class Trials:
    """The process that tries command lines, as a context."""

    grown = 0

    def __enter__(self) -> "Trials":
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "parity_tests.survival.trials"],
            cwd=ROOT,
            env=os.environ | FIXED,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.communicate()

    def __call__(self, *arguments: object) -> Outcome:
        assert self.popen.stdin
        assert self.popen.stdout
        self.popen.stdin.write(json.dumps([str(word) for word in arguments]) + "\n")
        self.popen.stdin.flush()
        line = self.popen.stdout.readline()
        assert line, f"the process ended at {arguments}, with {self.popen.wait()}"
        outcome = Outcome(**json.loads(line))
        self.grown = outcome.grown
        return outcome
