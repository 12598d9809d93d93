"""Runs that are killed by SIGKILL again and again, and resumed until they are done."""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from parity_tests.survival.process import Process, one_line, partials
from parity_tests.survival.runs import Left, Setting, resumed, resumed_after
from transformer_training.checkpoints import durable, store

# Moments to be killed at: somewhere on the way to the first update, somewhere among the updates,
# and while a checkpoint is written.
MOMENTS = {"starting": 0.15, "training": 0.35, "saving": 0.5}
# The longest times, in seconds, that a moment is put off by.
START, TRAINING, SAVING = 2.5, 0.7, 0.03


@dataclass
class Killer:
    """Kills a run up to `kills` times, at moments drawn from `rng`, and checks what is left.

    Args:
        setting: of the run.
        backends: who trains next.
        say: prints a line of progress.
    """

    setting: Setting
    backends: Iterator[str]
    rng: random.Random
    kills: int
    say: Callable[[str], None]
    tally: Counter[str] = field(default_factory=Counter)
    begin: int = -1  # the newest checkpoint when the process began

    def kill_until_done(self, path: Path) -> Left:
        """One run from its beginning to its end; it is killed while there are kills left."""
        left = Left(path)
        process = self._start(left)
        while self.tally["kills"] < self.kills and self._kill(process, left):
            process = self._resume(left)
        assert process.end() == 0, process.out + process.err
        self._check_words(process)
        assert partials(left.path) == []
        return left

    def _start(self, left: Left) -> Process:
        shutil.rmtree(left.path, ignore_errors=True)
        self.begin = -1
        return Process(*self.setting.fresh(left.path, next(self.backends)), env=self.setting.env)

    def _resume(self, left: Left) -> Process:
        """The next process; a new run where the first was killed before it had saved anything."""
        self.begin = left.newest
        arguments = resumed(left.path, "--backend", next(self.backends))
        process = Process(*arguments, env=self.setting.env)
        if self.begin >= 0:
            return process
        assert process.end() == 2, process.out
        one_line(process.err)
        self.tally["before there was a checkpoint"] += 1
        return self._start(left)

    def _kill(self, process: Process, left: Left) -> bool:
        """Whether the process was killed; else it has ended by itself."""
        moment = self.rng.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        if not self._wait(process, left, moment):
            return False
        before = left.newest
        process.popen.kill()
        if process.popen.wait() != -signal.SIGKILL:
            return False
        self._check(process, left, before)
        self.tally["kills"] += 1
        if self.tally["kills"] % 5 == 0:
            self.say(f"{self.tally['kills']} of {self.kills} kills, at update {left.newest}")
        return True

    def _wait(self, process: Process, left: Left, moment: str) -> bool:
        """Whether the moment has come before the process ended."""
        if moment == "starting":
            time.sleep(self.rng.uniform(0, START))
        else:
            process.wait_for(lambda: left.newest > self.begin)
            time.sleep(self.rng.uniform(0, TRAINING))
        if moment == "saving":
            process.wait_for(lambda: half_written(left), pause=0.0005)
            time.sleep(self.rng.uniform(0, SAVING))
        return process.popen.poll() is None

    def _check(self, process: Process, left: Left, before: int) -> None:
        """Nothing is lost that was saved, and all that bears a name is whole."""
        assert left.newest >= before
        if left.newest >= 0:
            assert left.verified()[-1].manifest.step == left.newest
        self._check_words(process)
        half = half_written(left)
        self.tally["in a save"] += any(step > left.newest for step in half)
        self.tally["in a removal"] += any(step <= left.newest for step in half)

    def _check_words(self, process: Process) -> None:
        """A resumed run says after which update: that of the newest checkpoint there was."""
        for bad in ("Traceback", "not used", "has lost"):
            assert bad not in process.out + process.err, process.out + process.err
        printed = resumed_after(process.out)
        assert printed in (None, self.begin), (printed, self.begin)
        self.tally["returns"] += printed is not None


def half_written(left: Left) -> list[int]:
    """Steps of what is being written or removed."""
    parent = left.path / "checkpoints"
    entries = list(parent.iterdir()) if parent.is_dir() else []
    found = [store.step_of(p.with_suffix("")) for p in entries if p.suffix == durable.PARTIAL]
    return [step for step in found if step is not None]
