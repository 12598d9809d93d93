"""The peak memory of a process, measured by itself."""

from pathlib import Path

import pytest

# The highest resident size of a process, which unlike getrusage's forgets the parent's.
HIGHEST = """
def highest():
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
"""


LINUX = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc"
)
