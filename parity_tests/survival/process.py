"""A process of train.py while it runs: what it says so far, and signals to it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from parity_tests.processes import FIXED, ROOT

# Of a machine that is busy with other things.
PATIENCE = 300.0
TRAIN = str(ROOT / "train.py")


class Process:
    """`python ARGUMENTS`, started. What it prints goes to files, so that nobody has to read on."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, **more: Any):
        self._files = TemporaryFile(), TemporaryFile()  # noqa: SIM115
        given = {"stdin": subprocess.DEVNULL, "stdout": self._files[0], "cwd": ROOT} | more
        self.popen = subprocess.Popen(
            [sys.executable, *arguments],
            stderr=self._files[1],
            env=os.environ | FIXED | {"PYTHONUNBUFFERED": "1"} | (env or {}),
            **given,
        )

    @property
    def out(self) -> str:
        return _content(self._files[0])

    @property
    def err(self) -> str:
        return _content(self._files[1])

    def wait_for(self, condition: Callable[[], object], pause: float = 0.002) -> bool:
        """Whether the condition came true before the process ended."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.popen.poll() is not None:
                return bool(condition())
            assert time.monotonic() < deadline, f"waited in vain: {self.out}{self.err}"
            time.sleep(pause)
        return True

    def end(self, signal: int | None = None) -> int:
        """The exit status, after a signal or without one."""
        if signal is not None:
            self.popen.send_signal(signal)
        status = self.popen.wait(PATIENCE)
        assert "Traceback" not in self.out + self.err, self.err
        return status


def finished(*arguments: str, **more: Any) -> Process:
    """A process that has ended by itself, with exit status 0."""
    process = Process(*arguments, **more)
    assert process.end() == 0, process.out + process.err
    return process


def again(statement: str, arguments: list[str]) -> list[str]:
    """Python once more, after a statement whose effect stays with the process."""
    modules = "import ctypes, os, resource, signal, sys"
    restart = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    return ["-c", f"{modules}; {statement}; {restart}", *arguments]


def one_line(text: str) -> str:
    """The text, which must be one line."""
    assert len(text.splitlines()) == 1, text
    return text


def partials(path: Path) -> list[str]:
    """What in a run's directory was not written to the end."""
    return sorted(str(p.relative_to(path)) for p in path.rglob("*.partial"))


def _content(file: Any) -> str:
    # The offset of the file is the process's too: to read from another would move it.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()
