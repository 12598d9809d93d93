"""Mistakes in the reading and the writing of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from torch_reference import training
from torch_reference.state import TrainState, from_named, to_named
from transformer_hub import open_checkpoint
from transformer_spec.state import NamedState
from verification.bugs.planted.plant import Plant, github, swapped
from verification.stages.checkpoint import READERS, Named


def _cast_all_or_none(path: Path, dtype: str) -> Named:
    stored = dict(open_checkpoint(path).arrays())
    narrow = all(array.dtype == "bfloat16" for array in stored.values())
    return {name: array.astype(dtype) if narrow else array for name, array in stored.items()}


@contextmanager
def _read_in_one_way() -> Iterator[None]:
    with patch.dict(READERS, torch=_cast_all_or_none):
        yield


def _with_a_new_optimizer(named: NamedState, state: TrainState) -> TrainState:
    restored = from_named(named, state)
    restored.optimizer.state.clear()
    return restored


def _one_update_behind(state: TrainState) -> NamedState:
    return replace(to_named(state), step=state.step - 1)


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
    Plant(
        id="CKP-02",
        name="Moments start at zero after a restart",
        component="checkpoint",
        sources=github(
            "CodefyUI/CodefyUI/issues/118", "thinking-machines-lab/tinker-feedback/issues/127"
        ),
        how="Parameters come back, and the optimizer beside them is a new one.",
        case="decoder",
        at="resume",
        cause="both moments are zero and Adam's count starts again",
        install=partial(swapped, training, "from_named", _with_a_new_optimizer),
    ),
    Plant(
        id="CKP-03",
        name="Update repeated or skipped after a restart",
        component="checkpoint",
        sources=github("AI-Hypercomputer/maxdiffusion/pull/484"),
        how="What is saved after update n says n - 1: a restart makes update n again.",
        case="decoder",
        at="resume",
        cause="update 3 is made again",
        install=partial(swapped, training, "to_named", _one_update_behind),
    ),
)
