"""Places where nothing can be written: disks that are full, or read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parity_tests.processes import run
from parity_tests.survival.process import again

# What lets root write in spite of a directory's permission bits: linux/capability.h.
OVERRIDES = (1, 2)
PR_CAPBSET_DROP = 24


def mounted(*options: str) -> subprocess.CompletedProcess:
    return subprocess.run(["mount", *options], capture_output=True, text=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A disk of so many bytes, in memory; where this user may not mount one the test says so."""
    path.mkdir()
    try:
        done = mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    except FileNotFoundError:
        pytest.skip("a full disk needs `mount`, which is not installed")
    if done.returncode:
        pytest.skip(f"a full disk needs the right to mount one: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def resize(path: Path, size: str) -> None:
    """Make room."""
    assert mounted("-o", f"remount,size={size}", str(path)).returncode == 0


def protect(path: Path, read_only: bool = True) -> None:
    """Let nobody write on a disk, or everybody again."""
    done = mounted("-o", f"remount,{'ro' if read_only else 'rw'}", str(path))
    assert done.returncode == 0, done.stderr


def fill(path: Path) -> Path:
    """A file that takes all the room there is."""
    file = path / "filler"
    with open(file, "wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                continue
        except OSError:
            return file


def with_files_below(size: int, arguments: list[str]) -> list[str]:
    """A command line whose process can write so many bytes to a file: there is room for no more."""
    return again(f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))", arguments)


def bound_by_permissions(arguments: list[str]) -> list[str]:
    """A command line whose process may write where permission bits let it, as that of any user."""
    if os.geteuid():
        return arguments
    drop = f"[ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, each, 0, 0, 0) for each in {OVERRIDES}]"
    done = run("-c", f"import ctypes, sys; sys.exit(any({drop}))")
    if done.returncode:
        pytest.skip(f"root may write everywhere, and cannot give that up here: {done.stderr}")
    return again(drop, arguments)
