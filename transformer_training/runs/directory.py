"""What a run leaves on disk, locked against any other run."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from transformer_spec.fields import ConfigError
from transformer_spec.state import Named
from transformer_training.checkpoints import durable, store
from transformer_training.checkpoints.arrays import save_arrays
from transformer_training.checkpoints.durable import saving

CONFIG, RECORDS, WEIGHTS, PICTURE = "config.json", "metrics.jsonl", "model.safetensors", "loss.png"
LOCK, CHECKPOINTS = ".lock", "checkpoints"
# All that a run has left if it was killed before its config was written, or is just starting.
NO_RUN_YET = (LOCK, CONFIG + durable.PARTIAL)


class RunDirectory:
    """config.json, metrics.jsonl, checkpoints, model.safetensors and loss.png of one run.

    Args:
        path: where; none for a new one under runs/, named after the run and the time.
        name: the run's.
        resume: whether to continue the run in it; otherwise it must be empty.

    `count` is the number of its records.
    """

    def __init__(self, path: str | None, name: str, resume: bool = False):
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        self.path = Path(path) if path else _unused(Path("runs") / f"{name}-{stamp}")
        self.checkpoints = self.path / CHECKPOINTS
        self.resume = resume
        self.count = 0
        self.check()

    def check(self) -> None:
        """Refuse a path that cannot be a directory or, for a new run, holds anything already."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise ConfigError(f"run_dir: {self.path} is a file; give a directory")
            entries = list(self.path.iterdir()) if self.path.is_dir() else []
        except OSError as error:
            raise ConfigError(f"run_dir: cannot read {self.path}: {error.strerror}") from None
        if not self.resume and any(entry.name not in NO_RUN_YET for entry in entries):
            held = "another run" if (self.path / CONFIG).exists() else "other files"
            raise ConfigError(f"run_dir: {self.path} already holds {held}; give a new one")

    def lock(self) -> None:
        """Lock the directory for this process, until it ends in whatever way.

        Raises:
            ConfigError: another run holds it, or nothing can be written there.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / LOCK)
            self._lock.acquire(timeout=0)
        except Timeout:
            message = f"run_dir: {self.path} is in use by a run that has not ended"
            raise ConfigError(message) from None
        except OSError as error:
            message = f"run_dir: cannot write to {self.path}: {error.strerror}"
            raise ConfigError(message) from None
        self.check()

    def unlock(self) -> None:
        self._lock.release()

    def save_config(self, config: dict[str, Any]) -> None:
        """Write config.json, whole."""
        with saving(self.path / CONFIG):
            durable.replace(self.path / CONFIG, (json.dumps(config, indent=2) + "\n").encode())

    def save_weights(self, named: Named) -> None:
        with saving(self.path / WEIGHTS):
            save_arrays(self.path / WEIGHTS, named)

    def log(self, record: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with saving(self.path / RECORDS), open(self.path / RECORDS, "a") as file:
            file.write(json.dumps(record) + "\n")
        self.count += 1

    def sync_records(self) -> None:
        """Wait until every line is on the disk: a checkpoint counts them."""
        path = self.path / RECORDS
        with saving(path):
            if path.exists():
                durable.sync(path)

    def records(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl that can be read."""
        return [record for line in self._lines() if (record := _parsed(line)) is not None]

    def rewind(self, count: int) -> int:
        """Drop all but the first `count` records; return how many of those cannot be read."""
        kept = [line for line in self._lines()[:count] if _parsed(line) is not None]
        with saving(self.path / RECORDS):
            durable.replace(self.path / RECORDS, "".join(f"{line}\n" for line in kept).encode())
        self.count = len(kept)
        return count - len(kept)

    def _lines(self) -> list[str]:
        path = self.path / RECORDS
        # No line break but "\n" ends a record: a sample may hold any other.
        lines = path.read_bytes().decode(errors="replace").split("\n") if path.is_file() else []
        return lines[:-1]

    def clean(self) -> None:
        """Remove files that a killed run had not finished writing."""
        for parent in (self.path, self.checkpoints):
            store.clean(parent)


def _parsed(line: str) -> dict[str, Any] | None:
    """A record; None where the line is torn or damaged."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and type(record.get("step")) is int else None


def _unused(path: Path) -> Path:
    """`path`, with a number where two runs start within one second."""
    candidates = [path, *(path.with_name(f"{path.name}-{i}") for i in range(2, 100))]
    return next(candidate for candidate in candidates if not candidate.exists())
