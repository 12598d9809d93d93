"""A model with its parameters: loaded from a checkpoint whole, saved as one."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from transformer_hub.checkpoint import open_pretrained
from transformer_hub.errors import CheckpointError, explained
from transformer_hub.families import FAMILIES
from transformer_hub.formats import safetensors_files
from transformer_hub.formats.any_format import CONFIG
from transformer_spec import naming
from transformer_spec.config import ModelConfig
from transformer_spec.fields import nearest
from transformer_spec.files import new_directory
from transformer_spec.parameters import parameter_shapes

# As `transformers` does.
MAX_SHARD_BYTES = 5 * 10**9
# The name of one setting before and from release 4.56 on.
DTYPE_KEYS = ("torch_dtype", "dtype")


@dataclass(frozen=True)
class Pretrained:
    """A model with its parameters.

    Args:
        family: a name in FAMILIES.
        config: the architecture.
        arrays: every parameter under its name in `parameter_shapes(config)`.
        hf_config: the config.json it came with, if it came with one.
    """

    family: str
    config: ModelConfig
    arrays: dict[str, np.ndarray]
    hf_config: dict[str, Any] = field(default_factory=dict)


def from_pretrained(path: str | Path, dtype: str | None = None) -> Pretrained:
    """Load the checkpoint in a local directory, or in a GGUF file. Nothing is downloaded.

    Args:
        path: a directory with config.json and model.safetensors, pytorch_model.bin or
            flax_model.msgpack (the first there is; the former two also in shards), or a GGUF file.
            For example the directory that `hf download openai-community/gpt2 --local-dir gpt2`
            fills; the name of a model on the hub is not looked up.
        dtype: float16, bfloat16, float32 or float64; none: what each tensor is stored in.

    Raises:
        CheckpointError: one line; see `open_pretrained` and `Checkpoint.arrays`.
    """
    checkpoint = open_pretrained(path)
    arrays = dict(checkpoint.arrays(dtype))
    return Pretrained(str(checkpoint.family), checkpoint.config, arrays, checkpoint.hf_config)


def save_pretrained(
    path: str | Path, pretrained: Pretrained, max_shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """Write config.json and model.safetensors, or shards with an index, to a new directory.

    Raises:
        CheckpointError: the directory holds files, the family is unknown or has no such
            architecture, or an array is missing, unknown or of another shape.
    """
    if pretrained.family not in FAMILIES:
        hint = nearest(pretrained.family, FAMILIES)
        raise CheckpointError(f"family: no {pretrained.family!r}; {hint}")
    family, config = FAMILIES[pretrained.family], pretrained.config
    try:
        naming.check_named(pretrained.arrays, parameter_shapes(config))
        written = family.write_config(config, pretrained.hf_config)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    written = {key: value for key, value in written.items() if key not in DTYPE_KEYS}
    dtypes = {array.dtype.name for array in pretrained.arrays.values()}
    # A config names one dtype; where arrays differ it names none, and is read as float32.
    written |= dict.fromkeys(DTYPE_KEYS, dtypes.pop()) if len(dtypes) == 1 else {}
    directory = new_directory(path)
    named = family.layout(config).to_theirs(pretrained.arrays)
    with explained(directory, SafetensorError, problem="cannot be written"):
        safetensors_files.write(directory, named, max_shard_bytes)
        (directory / CONFIG).write_text(json.dumps(written, indent=2) + "\n")
