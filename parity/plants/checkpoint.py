"""Mistakes in the reading of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from parity.plants.plant import Plant, github
from parity.stages.checkpoint import READERS, Named
from transformer_spec.huggingface import open_checkpoint


def _cast_all_or_none(path: Path, dtype: str) -> Named:
    stored = dict(open_checkpoint(path).arrays())
    narrow = all(array.dtype == "bfloat16" for array in stored.values())
    return {name: array.astype(dtype) if narrow else array for name, array in stored.items()}


@contextmanager
def _read_in_one_way() -> Iterator[None]:
    with patch.dict(READERS, torch=_cast_all_or_none):
        yield


PLANTS = (
    Plant(
        id="CKP-01",
        name="bfloat16 weights cast all or none",
        component="checkpoint",
        sources=github(
            "huggingface/transformers/issues/12626",
            "huggingface/transformers/pull/14369",
            "huggingface/transformers/pull/25094",
        ),
        how="Weights are cast if all of them are bfloat16; one that is not leaves all as stored.",
        case="decoder",
        at="checkpoint",
        cause="^what is stored in bfloat16 comes in bfloat16, where the reference has float32$",
        install=_read_in_one_way,
    ),
)
