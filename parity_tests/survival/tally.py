"""What became of mutated files, and copies to mutate."""

import shutil
from collections import Counter
from pathlib import Path

# All files of a trial together have less than 1 MB; a config is read up to 1 MB of text.
MEMORY = 64 * 2**20
EQUAL, BEFORE = "equal in meaning", "answered with the checkpoint before"


class Tally(Counter):
    """Outcomes by kind; `bad` are those that were answered with anything else."""

    def __init__(self):
        super().__init__()
        self.bad: list[tuple] = []

    def add(self, outcome, name, mutated, judge) -> None:
        """It is refused in one line, or it starts from what `judge` has a word for."""
        word = judge(outcome.found) if outcome.status is None and not outcome.err else ""
        if word:
            self[word] += 1
        elif outcome.refused:
            self["refused in one line"] += 1
        else:
            self.bad.append((name, outcome.status, outcome.out, outcome.err, mutated))

    def shown(self, trials) -> str:
        """The figures; fails where a file was answered with anything else."""
        for bad in self.bad[:5]:
            print(*bad, sep="\n", end="\n\n")
        assert not self.bad, f"{len(self.bad)} of {self.total() + len(self.bad)}"
        assert self[EQUAL] < 7 * self.total() // 8
        assert trials.grown < MEMORY
        figures = ", ".join(f"{number} {name}" for name, number in sorted(self.items()))
        return f"{figures}; {trials.grown / 2**20:.0f} MiB of memory"


def equal_if(same: bool) -> str:
    return EQUAL if same else ""


def cases(times, table):
    """Every kind of mutation in turn."""
    names = list(table)
    return [(names[i % len(names)], table[names[i % len(names)]]) for i in range(times)]


def copied(source: Path, target: Path) -> Path:
    """A fresh copy, in place of the last one."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))
