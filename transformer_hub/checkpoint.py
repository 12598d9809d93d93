"""An opened checkpoint: its tensors are checked against its config before any of them is read.

Two kinds of directory are opened: one in a format of the hub, and one of this project, which a
training run or `import` leaves:

    config.json          {"model": ModelConfig, ...}; of an import also "family" and "huggingface",
                         of a run on text also "tokenizer"
    model.safetensors    the parameters under our names
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub import families
from transformer_hub.errors import CheckpointError
from transformer_hub.formats.any_format import StoredModel, open_stored
from transformer_hub.formats.lazy_tensor import Tensors
from transformer_spec import naming
from transformer_spec.config import ModelConfig
from transformer_spec.fields import check_type
from transformer_spec.parameters import check_counts, parameter_shapes

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Checkpoint:
    """What a directory holds, be it from the hub or of this project.

    Args:
        path: the directory, or the GGUF file.
        family: a name in FAMILIES; none for a run of this project.
        config: the architecture.
        hf_config: the hub's config.json, where it comes from there.
        tokenizer: how a run turned text into ids, where it did.
        files: those that hold the tensors.
        tensors: the stored tensors under their family's canonical names.
        to_ours: converts these tensors to arrays under our names, one group at a time.
    """

    path: Path
    family: str | None
    config: ModelConfig
    hf_config: dict[str, Any]
    tokenizer: dict[str, Any] | None
    files: tuple[Path, ...]
    tensors: Tensors
    to_ours: Callable[[Tensors], Iterator[tuple[str, np.ndarray]]]

    def arrays(self, dtype: str | None = None) -> Iterator[tuple[str, np.ndarray]]:
        """Our parameters one by one, in the dtype they are stored in or in `dtype`.

        Raises:
            CheckpointError: a value has no finite counterpart in `dtype`.
        """
        if dtype not in (None, *FLOATS):
            raise CheckpointError(f"dtype: no {dtype!r}; choose from {', '.join(FLOATS)}")
        for name, array in self.to_ours(self.tensors):
            yield name, _cast(self.path, name, array, np.dtype(dtype or array.dtype))


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a checkpoint of either kind: from the hub, or a run's or imported directory."""
    stored = open_stored(path)
    is_ours = "model" in stored.config and "model_type" not in stored.config
    return _open_ours(Path(path), stored) if is_ours else _open_theirs(Path(path), stored)


def open_pretrained(path: str | Path) -> Checkpoint:
    """Open a checkpoint from the hub: a local directory or GGUF file. Nothing is downloaded.

    Raises:
        CheckpointError: a file cannot be read, no family has its config, or tensors are missing,
            unknown or of another shape; all of these are named.
    """
    return _open_theirs(Path(path), open_stored(path))


def _open_theirs(path: Path, stored: StoredModel) -> Checkpoint:
    raw, files, found = stored
    with _naming_checkpoint(path):
        family = families.find(raw, found)
        config = family.read_config(raw, found)
        check_counts(config)
        layout = family.layout(config)
        tensors = {name: found[place] for name, place in layout.canonical(found).items()}
        _check_dtypes(tensors)
        layout.to_ours(tensors)  # it checks all tensors before it hands out the first
    return Checkpoint(path, family.name, config, raw, None, files, tensors, layout.to_ours)


def _open_ours(path: Path, stored: StoredModel) -> Checkpoint:
    raw, files, tensors = stored
    with _naming_checkpoint(path):
        config = ModelConfig.from_dict(raw["model"])
        check_counts(config)
        naming.check_named(tensors, parameter_shapes(config))
        _check_dtypes(tensors)
        family = check_type("family", raw.get("family"), str | None)
        hf_config = check_type("huggingface", raw.get("huggingface", {}), dict)
        tokenizer = check_type("tokenizer", raw.get("tokenizer"), dict | None)
    return Checkpoint(path, family, config, hf_config, tokenizer, files, tensors, _read_unchanged)


def _read_unchanged(tensors: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    return ((name, tensor.read()) for name, tensor in tensors.items())


@contextmanager
def _naming_checkpoint(path: Path) -> Iterator[None]:
    """Put the checkpoint's path in front of what is wrong with its config or tensors."""
    try:
        yield
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _check_dtypes(tensors: Tensors) -> None:
    odd = [f"{name} is {t.dtype}" for name, t in tensors.items() if t.dtype.name not in FLOATS]
    if odd:
        raise CheckpointError(f"{', '.join(odd)}; parameters must be {', '.join(FLOATS)}")


def _cast(path: Path, name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A contiguous array: a view into a fused tensor would keep all of that in memory."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype)
    if dtype != array.dtype and np.isinf(converted).sum() != np.isinf(array).sum():
        raise CheckpointError(
            f"{path}: {name}: has values outside the range of {dtype}; choose a wider dtype"
        )
    return converted
