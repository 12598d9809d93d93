"""A checkpoint, opened: every tensor known and held against its config before one is read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub import families
from transformer_hub.errors import CheckpointError
from transformer_hub.lazy import Tensors
from transformer_hub.stored import Stored, open_stored
from transformer_spec import naming
from transformer_spec.config import MixtureOfExperts, ModelConfig
from transformer_spec.fields import check_type
from transformer_spec.parameters import parameter_shapes

# Above all that has been published.
MAX_LAYERS, MAX_EXPERTS = 1_000, 100_000
FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Checkpoint:
    """What a directory holds, from the hub or of this project.

    Args:
        path: the directory, or the GGUF file.
        family: a name among FAMILIES; none for a run of this project.
        config: the architecture.
        hf_config: the hub's config.json, where it comes from there.
        tokenizer: what a run's ids mean, where they are text.
        files: what holds the tensors.
        tensors: stored tensors under their family's canonical names.
        to_ours: these tensors, under our names, one group at a time.
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
        """Our parameters one by one, as they are stored or in `dtype`.

        Raises:
            CheckpointError: a value has no finite counterpart in `dtype`.
        """
        if dtype not in (None, *FLOATS):
            raise CheckpointError(f"dtype: no {dtype!r}; choose from {', '.join(FLOATS)}")
        for name, array in self.to_ours(self.tensors):
            yield name, _converted(name, array, np.dtype(dtype or array.dtype))


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A checkpoint from the hub, a run directory, or what was imported from the hub."""
    stored = open_stored(path)
    is_ours = "model" in stored[0] and "model_type" not in stored[0]
    return _ours(Path(path), stored) if is_ours else _theirs(Path(path), stored)


def open_pretrained(path: str | Path) -> Checkpoint:
    """A checkpoint from the hub.

    Raises:
        CheckpointError: a file cannot be read, no family has its config, or tensors are missing,
            unknown or misshapen; all of these are named.
    """
    return _theirs(Path(path), open_stored(path))


def _theirs(path: Path, stored: Stored) -> Checkpoint:
    raw, files, found = stored
    with _located(path):
        family = families.find(raw, found)
        config = family.read_config(raw, found)
        check_counts(config)
        layout = family.layout(config)
        tensors = {name: found[place] for name, place in layout.canonical(found).items()}
        _check_dtypes(tensors)
        layout.to_ours(tensors)  # it looks at all tensors before it hands out the first
    return Checkpoint(path, family.name, config, raw, None, files, tensors, layout.to_ours)


def _ours(path: Path, stored: Stored) -> Checkpoint:
    raw, files, tensors = stored
    with _located(path):
        config = ModelConfig.from_dict(raw["model"])
        check_counts(config)
        naming.check_named(tensors, parameter_shapes(config))
        _check_dtypes(tensors)
        family = check_type("family", raw.get("family"), str | None)
        hf_config = check_type("huggingface", raw.get("huggingface", {}), dict)
        tokenizer = check_type("tokenizer", raw.get("tokenizer"), dict | None)
    return Checkpoint(path, family, config, hf_config, tokenizer, files, tensors, _as_stored)


def _as_stored(tensors: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    return ((name, tensor.read()) for name, tensor in tensors.items())


@contextmanager
def _located(path: Path) -> Iterator[None]:
    """Errors of configs and tensors, with the checkpoint they are about."""
    try:
        yield
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


def check_counts(config: ModelConfig) -> None:
    """Refuse so many layers or experts that to make names for all of them could take any memory."""
    layers = config.num_layers + (config.num_decoder_layers or 0)
    experts = config.ffn.num_experts if isinstance(config.ffn, MixtureOfExperts) else 1
    if layers > MAX_LAYERS or layers * experts > MAX_EXPERTS:
        raise CheckpointError(
            f"config.json asks for {layers:,} layers of {experts:,} experts; it may have "
            f"{MAX_LAYERS:,} layers, and {MAX_EXPERTS:,} experts in all"
        )


def _check_dtypes(tensors: Tensors) -> None:
    odd = [f"{name} is {t.dtype}" for name, t in tensors.items() if t.dtype.name not in FLOATS]
    if odd:
        raise CheckpointError(f"{', '.join(odd)}; parameters must be {', '.join(FLOATS)}")


def _converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A contiguous array: a part of a fused one would keep the whole of it in memory."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype)
    if dtype != array.dtype and np.isinf(converted).sum() != np.isinf(array).sum():
        raise CheckpointError(f"{name}: has values beyond {dtype}; choose a wider dtype")
    return converted
