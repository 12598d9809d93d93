"""Mistakes in dtypes."""

from functools import partial

import torch
from torch import Tensor

from torch_reference import attention, models
from torch_reference.attention import masked_softmax
from torch_reference.models import LanguageModel
from verification.bugs.seeded_bug import SeededBug, swapped


def _narrow_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    # Step by step: torch's own softmax widens inside.
    if mask is not None:
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights if mask is None else torch.where(mask, weights, 0.0)


def _float32_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    return masked_softmax(scores.float(), mask)


class _StoredInFloat32(LanguageModel):
    """Arithmetic in bfloat16 over parameters that no cast reaches."""

    def _apply(self, fn, recurse=True):
        return super()._apply(lambda tensor: fn(tensor).to(tensor.dtype), recurse)

    def forward(self, tokens, token_mask=None, mask=None, positions=None, prefix_mask=None):
        with torch.autocast(tokens.device.type, torch.bfloat16):
            return super().forward(tokens, token_mask, mask, positions, prefix_mask)


BUGS = (
    SeededBug(
        id="DTP-02",
        name="Softmax in half precision",
        component="precision",
        sources=("https://github.com/google/flax/issues/4008",),
        how="The wish for a float32 softmax is dropped on the way: it runs in bfloat16.",
        case="modern",
        at="decoder.layers.0.attn",
        cause="softmax computed in bfloat16",
        install=partial(swapped, attention, "masked_softmax", _narrow_softmax),
    ),
    SeededBug(
        id="DTP-03",
        name="Parameters stay in float32",
        component="precision",
        sources=(
            "https://github.com/huggingface/transformers/issues/12534",
            "https://github.com/huggingface/transformers/pull/13098",
            "https://github.com/huggingface/transformers/pull/16762",
        ),
        how="The dtype asked for is that of the arithmetic alone; parameters keep their own.",
        case="modern",
        at="parameters.decoder.embed.weight",
        cause="dtype float32, where the reference has bfloat16",
        install=partial(swapped, models, "LanguageModel", _StoredInFloat32),
    ),
    SeededBug(
        id="DTP-04",
        name="Softmax in float32 within a float64 run",
        component="precision",
        sources=(
            "https://github.com/huggingface/transformers/issues/48459",
            "https://github.com/huggingface/transformers/pull/48466",
        ),
        how="Scores are cast to float32 whatever they come in, so a float64 run has 7 digits.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause="softmax computed in float32",
        install=partial(swapped, attention, "masked_softmax", _float32_softmax),
    ),
)
