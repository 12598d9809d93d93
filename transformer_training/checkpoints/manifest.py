"""checkpoint.json: what a checkpoint holds, and the hashes of its files."""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformer_spec import fields
from transformer_spec.fields import ConfigError
from transformer_spec.files import CheckpointError, explained
from transformer_spec.state import STREAMS

NAME = "checkpoint.json"
# The format is that of the arrays' files; its version, that of checkpoint.json.
FORMAT, VERSION = "named safetensors", 1
FILE = {"name": str, "bytes": int, "sha256": str}
LIBRARIES = ("numpy", "safetensors", "jax", "flax", "optax", "torch")
# Far above any that is written here: a larger file is not ours, and is not read to its end.
MAX_BYTES = 2**24


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of checkpoint.json.

    Args:
        step: the updates behind it.
        next_update, epoch: position in the data: the next update, and its epoch, from 1.
        fingerprint: of the task's data.
        random, dropout_key: name of the random streams, and the two words of the key.
        draws: the formula of the run's first parameters, `initializers.DRAWS` of its day; None for
            those of `jax.random`, whose formula was that of its version.
        backend: the one that wrote it.
        model, train: the configs.
        seconds: how long the run has taken.
        records: the lines of metrics.jsonl up to here.
        recorded: the updates that these lines cover.
        eval_loss: of this step, if it was evaluated.
        best_step, best_eval_loss: the best evaluation so far.
        versions: of Python and of the libraries that are installed.
        files: name, bytes and sha256 of each.
    """

    format: str = FORMAT
    version: int = VERSION
    step: int
    next_update: int
    epoch: int
    fingerprint: str
    random: str = STREAMS
    dropout_key: list
    draws: str | None = None
    backend: str
    model: dict
    train: dict
    seconds: float
    records: int
    recorded: int
    eval_loss: float | None = None
    best_step: int | None = None
    best_eval_loss: float | None = None
    versions: dict = field(default_factory=lambda: installed())
    files: list = field(default_factory=list)

    def __post_init__(self):
        fields.check_types(self)
        fields.require(self.random == STREAMS, "random", self.random, STREAMS)
        follows = self.next_update == self.step + 1
        fields.require(follows, "next_update", self.next_update, f"step {self.step} + 1")
        words = len(self.dropout_key) == 2 and all(
            type(word) is int and 0 <= word < 2**32 for word in self.dropout_key
        )
        fields.require(words, "dropout_key", self.dropout_key, "two numbers below 2**32")
        for entry in self.files:
            kinds = {k: type(v) for k, v in entry.items()} if isinstance(entry, dict) else {}
            plain = kinds == FILE and Path(entry["name"]).name == entry["name"]
            fields.require(plain, "files", entry, "a name beside it, bytes and sha256")


@cache
def installed() -> dict[str, str]:
    """The versions of Python and of the installed libraries, none of which is imported."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def render(manifest: Manifest) -> bytes:
    """The one text of this manifest: a file that differs, be it by a space, is damaged."""
    content = asdict(manifest)
    if manifest.draws is None:  # as runs were written whose formula had no name
        del content["draws"]
    return (json.dumps(content | {"sha256": _sha256(content)}, indent=2) + "\n").encode()


def _sha256(content: dict[str, Any]) -> str:
    """Of the content without its layout."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def read(directory: Path) -> Manifest:
    """checkpoint.json of a checkpoint.

    Raises:
        CheckpointError: it is missing, of another format, or not as it was written.
    """
    path = directory / NAME
    if not path.is_file():  # to open a pipe would block
        raise CheckpointError(f"{path}: damaged: no such file")
    with explained(path), open(path, "rb") as file:
        text = file.read(MAX_BYTES)
    try:
        content: dict[str, Any] = json.loads(text)
        stated, actual = content.pop("sha256"), _sha256(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{path}: damaged: no JSON object with its sha256") from None
    if actual != stated:
        raise CheckpointError(f"{path}: damaged: sha256 {actual} of its content, not {stated}")
    return _checked(path, content, text)


def _checked(path: Path, content: dict[str, Any], text: bytes) -> Manifest:
    kind = (content.get("format"), content.get("version"))
    if kind != (FORMAT, VERSION):
        raise CheckpointError(
            f"{path}: format {kind[0]!r}, version {kind[1]!r}; this version of the project reads "
            f"{FORMAT!r}, version {VERSION}"
        )
    try:
        found = fields.from_dict(Manifest, content)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    if text != render(found):
        raise CheckpointError(f"{path}: damaged: not laid out as it was written")
    return found
