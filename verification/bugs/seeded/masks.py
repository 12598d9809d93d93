"""Mistakes in masks: which keys a query sees, and what a hidden score becomes."""

from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from torch_reference import attention, masks, stacks
from torch_reference.masks import causal_mask, combine_masks
from torch_reference.stacks import self_attention_mask
from verification.bugs.seeded_bug import SeededBug, github, swapped


def _softmax(wrong) -> partial[AbstractContextManager[None]]:
    return partial(swapped, attention, "masked_softmax", wrong)


def _masks(wrong) -> partial[AbstractContextManager[None]]:
    return partial(swapped, stacks, "self_attention_mask", wrong)


def _biased(scores: Tensor, mask: Tensor | None, hidden: float, seen: float = 0.0) -> Tensor:
    """Softmax of the scores plus one number where the mask hides and another where it does not."""
    if mask is None:
        return scores.softmax(dim=-1)
    return (scores + torch.where(mask, seen, hidden).to(scores.dtype)).softmax(dim=-1)


def _future(queries, keys, window=None):
    return causal_mask(queries, keys, window).transpose(-1, -2)


def _any_distance(queries, keys, window=None):
    return causal_mask(queries, keys)


def _one_key_more(queries, keys, window=None):
    return causal_mask(queries, keys, window and window + 1)


def _prefix_unseen(causal, prefix_mask):
    return causal


def _causal_unless_padded(config, tokens, token_mask, mask, own):
    own = own if token_mask is None else None
    return self_attention_mask(config, tokens, token_mask, mask, own)


def _minus_infinity(scores, mask):
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1)


def _triangle_of_the_width(config, tokens, token_mask, mask, own):
    rest = self_attention_mask(config, tokens, token_mask, mask, None)
    if own is None:
        return rest
    width = config.d_model
    # As jax indexes: past the end of the buffer its last row and column are read again.
    at = torch.arange(tokens.shape[1], device=tokens.device).clamp(max=width - 1)
    return combine_masks(causal_mask(at, at), rest)


def _without_documents(config, tokens, token_mask, mask, own):
    return self_attention_mask(config, tokens, token_mask, None, own)


BUGS = (
    SeededBug(
        id="MSK-02",
        name="Window kept by one kernel and not by the other",
        component="mask",
        sources=github("unslothai/unsloth/pull/8253", "RBLN-SW/vllm-rbln/issues/34"),
        how="The mask is causal alone: a query sees keys as far back as there are any.",
        case="rotary",
        at="decoder",
        cause=r"^causality \([^)]*\), where the reference has .* and a window of 5 keys$",
        install=partial(swapped, masks, "causal_mask", _any_distance),
    ),
    SeededBug(
        id="MSK-04",
        name="A window of W keys taken for W keys before the query",
        component="mask",
        sources=github("huggingface/transformers/issues/39408"),
        how="The window does not count the query's own key, so each query sees W + 1.",
        case="rotary",
        at="decoder",
        cause="and a window of 6 keys, where the reference has .* and a window of 5 keys$",
        install=partial(swapped, masks, "causal_mask", _one_key_more),
    ),
    SeededBug(
        id="MSK-05",
        name="Causal triangle the wrong way round",
        component="mask",
        sources=(
            "https://github.com/pytorch/pytorch/issues/29546",
            "https://github.com/pytorch/examples/issues/649",
        ),
        how="The causal mask is transposed: each token sees itself and what follows.",
        case="modern",
        at="decoder",
        cause="^reversed causality",
        install=partial(swapped, masks, "causal_mask", _future),
    ),
    SeededBug(
        id="MSK-07",
        name="Padding mask of ones and zeros added to the scores",
        component="mask",
        sources=(
            "https://github.com/pytorch/pytorch/issues/103749",
            "https://github.com/mlverse/torch/pull/1208",
        ),
        how="The mask is added as 1.0 and 0.0: padding stays visible, a little less likely.",
        case="encoder_decoder",
        at="encoder.layers.0.attn",
        cause="0/1 mask is added to the scores as a number",
        install=_softmax(partial(_biased, hidden=0.0, seen=1.0)),
    ),
    SeededBug(
        id="MSK-08",
        name="A decoder that sees the future",
        component="mask",
        sources=("https://github.com/huggingface/transformers/issues/48745",),
        how="No causal mask is made once the caller gives a padding mask.",
        case="decoder",
        at="decoder",
        cause="^padding of token_mask and the mask mask, where the reference has causality",
        install=_masks(_causal_unless_padded),
    ),
    SeededBug(
        id="MSK-09",
        name="Mask constant beyond the range of float16",
        component="mask",
        sources=("https://github.com/ahrefs/ocannl/issues/548",),
        how="-1e9 is added in float16, where it is minus infinity: a row without keys is NaN.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause=r"masked score is -1e\+09, added",
        install=_softmax(partial(_biased, hidden=-1e9)),
    ),
    SeededBug(
        id="MSK-11",
        name="Mask constant too small to hide",
        component="mask",
        sources=("https://github.com/huggingface/transformers/pull/17306",),
        how="Hidden scores get -1e4 added, so a row whose keys are all hidden attends as usual.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause="masked score is -10000, added",
        install=_softmax(partial(_biased, hidden=-1e4)),
    ),
    SeededBug(
        id="MSK-12",
        name="A query without keys gives NaN",
        component="mask",
        sources=(
            "https://github.com/pytorch/pytorch/issues/103749",
            "https://github.com/ml-explore/mlx/issues/2395",
            "https://github.com/tracel-ai/burn/issues/4694",
        ),
        how="Hidden scores are minus infinity, so the softmax over none but hidden keys is 0 / 0.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause="row that may attend to nothing is NaN",
        install=_softmax(_minus_infinity),
    ),
    SeededBug(
        id="MSK-15",
        name="Causal buffer as large as the model is wide",
        component="mask",
        sources=("https://github.com/huggingface/transformers/pull/13735",),
        how="The triangle has d_model rows, not max_seq_len: tokens past its end see each other.",
        case="modern",
        at="decoder",
        cause="triangle of a buffer of 7 positions",
        install=_masks(_triangle_of_the_width),
    ),
    SeededBug(
        id="MSK-17",
        name="Documents packed in one row see each other",
        component="mask",
        sources=(
            "https://github.com/AI-Hypercomputer/maxtext/issues/4476",
            "https://github.com/huggingface/nanoVLM/pull/204",
        ),
        how="The caller's block-diagonal mask never reaches attention.",
        case="decoder",
        at="decoder",
        cause=r"^causality \([^)]*\) and padding of token_mask, where .* the mask mask$",
        install=_masks(_without_documents),
    ),
    SeededBug(
        id="MSK-18",
        name="Prefix that should be seen both ways is causal",
        component="mask",
        sources=github("NVIDIA/TensorRT-LLM/issues/1384", "zai-org/ChatGLM-6B/issues/134"),
        how="The prefix is dropped on the way to the mask, which stays causal.",
        case="channels",
        at="decoder",
        cause=r"^causality \(.*\), where the reference has causality but for .* prefix_mask",
        install=partial(swapped, masks, "prefix_lm_mask", _prefix_unseen),
    ),
)
