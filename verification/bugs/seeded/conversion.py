"""Mistakes in the conversion of parameters: from Linen to torch, and from a checkpoint."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from parity.observe import weights
from torch_reference import positions, training
from torch_reference.positions import sinusoidal_table
from torch_reference.state import TrainState, from_named, to_named
from transformer_hub import open_checkpoint
from transformer_hub.families.relations import Fused
from transformer_spec.parameters import is_embedding
from transformer_spec.state import NamedState
from verification.bugs.cases import CASES
from verification.bugs.seeded_bug import SeededBug, github, swapped
from verification.stages.checkpoint import READERS, Named

Values = dict[str, Tensor]
Change = Callable[[Values, Values], Values]
_KEY_HEADS = CASES["decoder"].config.kv_heads


def converted(change: Change) -> AbstractContextManager[None]:
    """The conversion writes `change(fresh, right)`: what was in the model, and what belongs there.

    Names that `change` leaves out get their right values.
    """
    convert = weights.weights_to_torch

    @torch.no_grad()
    def wrong(params: dict[str, Any], model: nn.Module) -> None:
        fresh = _values(model)
        convert(params, model)
        changed = change(fresh, _values(model))
        for name, parameter in model.named_parameters():
            if name in changed:
                parameter.copy_(changed[name])

    return swapped(weights, "weights_to_torch", wrong)


def _values(model: nn.Module) -> Values:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _square_not_transposed(fresh: Values, right: Values) -> Values:
    square = {n: w for n, w in right.items() if w.ndim == 2 and w.shape[0] == w.shape[1]}
    return {n: w.T for n, w in square.items() if n.endswith("o_proj.weight")}


def _reshaped(fresh: Values, right: Values) -> Values:
    kernels = {n: w.T for n, w in right.items() if w.ndim == 2 and not is_embedding(n)}
    return {n: kernel.reshape(right[n].shape) for n, kernel in kernels.items()}


def _cut_in_flat_thirds(fresh: Values, right: Values) -> Values:
    # Of a checkpoint that holds q, k and v fused, one group of rows for each key head.
    found: Values = {}
    for name in (n for n in right if ".attn.q_proj." in n):
        names = tuple(name.replace("q_proj", f"{part}_proj") for part in "qkv")
        ours = [right[n].numpy() for n in names]
        heads = Fused("qkv", names, groups=_KEY_HEADS).to_theirs(ours)
        thirds = Fused("qkv", names).to_ours(heads, [array.shape for array in ours])
        found |= dict(zip(names, map(torch.as_tensor, thirds), strict=True))
    return found


def _left_fresh(fresh: Values, right: Values) -> Values:
    return {n: w for n, w in fresh.items() if ".ffn." in n}


def _sorted_as_strings(fresh: Values, right: Values) -> Values:
    layers = [n.split(".") for n in right if n.startswith("decoder.layers.")]
    order = sorted({layer for _, _, layer, *_ in layers})
    return {
        ".".join(parts): right[".".join(["decoder.layers", order[int(parts[2])], *parts[3:]])]
        for parts in layers
    }


def _biases_forgotten(fresh: Values, right: Values) -> Values:
    names = tuple(f"{part}_proj.bias" for part in "qkv")
    return {n: torch.zeros_like(b) for n, b in right.items() if n.endswith(names)}


def _rounded_table(max_seq_len: int, d_model: int) -> np.ndarray:
    table = torch.as_tensor(sinusoidal_table(max_seq_len, d_model))
    return table.bfloat16().double().numpy()


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


BUGS = (
    SeededBug(
        id="CNV-01",
        name="Square matrix copied as it is",
        component="conversion",
        sources=(
            "https://github.com/nntile/nntile/pull/370",
            "https://github.com/AutoGPTQ/AutoGPTQ/pull/139",
            "https://github.com/huggingface/transformers/issues/311",
        ),
        how="The [in, out] kernel of o_proj becomes an [out, in] weight with no transpose.",
        case="post",
        at="parameters.decoder.layers.0.attn.o_proj.weight",
        cause="^transposed$",
        install=partial(converted, _square_not_transposed),
    ),
    SeededBug(
        id="CNV-02",
        name="Reshape for a transpose",
        component="conversion",
        sources=(
            "https://github.com/google-research/t5x/issues/198",
            "https://github.com/huggingface/transformers/issues/22573",
        ),
        how="Kernels are reshaped from [in, out] to [out, in], which scrambles their values.",
        case="decoder",
        at="parameters.decoder.layers.0.attn.q_proj.weight",
        cause="reshaped where it had to be transposed",
        install=partial(converted, _reshaped),
    ),
    SeededBug(
        id="CNV-03",
        name="Fused q, k and v cut in flat thirds",
        component="conversion",
        sources=github(
            "lablup/mlxcel/pull/928",
            "awslabs/slapo/pull/46",
            "Lightning-AI/litgpt/pull/1013",
            "vllm-project/vllm/pull/53114",
        ),
        how="A checkpoint's fused matrix has q, k and v per key head; it is cut as [q | k | v].",
        case="decoder",
        at="parameters.decoder.layers.0.attn.q_proj.weight",
        cause="q_proj, k_proj and v_proj: fused in 3 groups of rows, cut as if in 1$",
        install=partial(converted, _cut_in_flat_thirds),
    ),
    SeededBug(
        id="CNV-05",
        name="Parameters that were never loaded",
        component="conversion",
        sources=(
            "https://github.com/Blaizzy/mlx-audio/issues/902",
            "https://github.com/torchgeo/torchgeo/issues/4036",
            "https://github.com/vllm-project/speculators/pull/1131",
            "https://github.com/hexgrad/kokoro/issues/368",
        ),
        how="Names of the feed-forward layers do not match, nobody is told, fresh values stay.",
        case="decoder",
        at="parameters.decoder.layers.0.ffn.up_proj.weight",
        cause="never copied",
        install=partial(converted, _left_fresh),
    ),
    SeededBug(
        id="CNV-07",
        name="Layer 10 in the place of layer 2",
        component="conversion",
        sources=(
            "https://github.com/jax-ml/jax/issues/4085",
            "https://github.com/google-deepmind/tree/issues/10",
        ),
        how="Layers are filled in the order of their numbers sorted as strings.",
        case="deep",
        at="parameters.decoder.layers.2.attn_norm.weight",
        cause="holds the reference's decoder.layers.10",
        install=partial(converted, _sorted_as_strings),
    ),
    SeededBug(
        id="CNV-09",
        name="Biases not copied",
        component="conversion",
        sources=("https://github.com/vllm-project/vllm/issues/16904",),
        how="The biases of q, k and v are zero after the conversion.",
        case="decoder",
        at="parameters.decoder.layers.0.attn.q_proj.bias",
        cause="all zero: never copied",
        install=partial(converted, _biases_forgotten),
    ),
    SeededBug(
        id="CNV-10",
        name="Position table cast along with the model",
        component="conversion",
        sources=("https://github.com/huggingface/transformers/issues/25681",),
        how="The sinusoidal table has been through bfloat16 and keeps its three digits.",
        case="encoder_decoder",
        at="encoder.pos_embed",
        cause="computed in bfloat16",
        install=partial(swapped, positions, "sinusoidal_table", _rounded_table),
    ),
    SeededBug(
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
    SeededBug(
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
    SeededBug(
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
