"""Mistakes in attention: the scale, the heads, the axes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from torch_reference import attention
from torch_reference.attention import Attention, dot_product_attention, masked_softmax
from transformer_spec.config import ModelConfig
from transformer_spec.taps import tap
from verification.bugs.seeded_bug import SeededBug, swapped

_init = Attention.__init__


def _scaled_by(factor: Callable[[ModelConfig], float]) -> AbstractContextManager[None]:
    """Every attention layer multiplies its scores by `factor` of the model's config."""

    def init(self: Attention, config: ModelConfig) -> None:
        _init(self, replace(config, attention_scale=factor(config)))

    return swapped(Attention, "__init__", init)


def _attends(wrong: Callable[..., tuple[Tensor, Tensor]]) -> partial[AbstractContextManager[None]]:
    return partial(swapped, attention, "dot_product_attention", wrong)


def _divided_by_reciprocal(q, k, v, mask=None, *, scale, **rest):
    return dot_product_attention(q, k, v, mask, scale=1 / scale, **rest)


def _merged_without_transpose(q, k, v, mask=None, **rest):
    context, weights = dot_product_attention(q, k, v, mask, **rest)
    heads_first = context.transpose(1, 2)
    return heads_first.reshape(context.shape), weights


class _PerHead(nn.Linear):
    """One small matrix that every head's slice of the input goes through."""

    def forward(self, input: Tensor) -> Tensor:
        slices = input.reshape(*input.shape[:-1], -1, self.in_features)
        return super().forward(slices).flatten(-2)


def _init_with_shared_matrices(self: Attention, config: ModelConfig) -> None:
    _init(self, config)
    width = config.head_size
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(self, name, _PerHead(width, width, bias=config.qkv_bias))


def _tiled(q, k, v, mask=None, *, scale, dropout, **rest):
    grouped = q.unflatten(2, (k.shape[2], -1))
    k, v = (x.repeat(1, 1, grouped.shape[3], 1).unflatten(2, grouped.shape[2:4]) for x in (k, v))
    mask = None if mask is None else mask.unsqueeze(1)
    scores = tap("scores", torch.einsum("BTKGH,BSKGH->BKGTS", grouped, k) * scale)
    weights = tap("weights", masked_softmax(scores, mask).to(v.dtype))
    context = tap("context", torch.einsum("BKGTS,BSKGH->BTKGH", dropout(weights), v))
    return context.reshape(q.shape), weights.flatten(1, 2)


def _mask_of_another_row(q, k, v, mask=None, **rest):
    if mask is not None:
        rows, heads = q.shape[0], q.shape[2]
        fold = torch.arange(heads * rows, device=q.device).reshape(heads, rows).T
        whole = mask.expand(rows, heads, *mask.shape[2:])
        mask = whole[fold // heads, torch.arange(heads, device=q.device)]
    return dot_product_attention(q, k, v, mask, **rest)


def _across_the_batch(q, k, v, mask=None, **rest):
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    context, weights = dot_product_attention(q, k, v, mask, **rest)
    return context.transpose(0, 1), weights


BUGS = (
    SeededBug(
        id="ATT-01",
        name="Scale taken from the width of the model",
        component="attention",
        sources=(
            "https://github.com/lucidrains/vit-pytorch/issues/65",
            "https://github.com/karpathy/ng-video-lecture/pull/6",
            "https://github.com/aladdinpersson/Machine-Learning-Collection/pull/159",
        ),
        how="Scores are multiplied by d_model**-0.5 where head_dim**-0.5 is meant.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause=r"score scale \S+ = d_model\*\*-0.5, where the reference has \S+ = head_dim\*\*-0.5",
        install=partial(_scaled_by, lambda c: c.d_model**-0.5),
    ),
    SeededBug(
        id="ATT-02",
        name="Scale used upside down",
        component="attention",
        sources=("https://github.com/esceptico/perceiver-io/issues/9",),
        how="Scores are divided by head_dim**-0.5, which makes them larger by a factor head_dim.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause=r"score scale \S+ = head_dim\*\*0.5, where the reference has \S+ = head_dim\*\*-0.5",
        install=_attends(_divided_by_reciprocal),
    ),
    SeededBug(
        id="ATT-03",
        name="A model without a scale gets one",
        component="attention",
        sources=(
            "https://github.com/huggingface/transformers/issues/20828",
            "https://github.com/huggingface/transformers/pull/12150",
        ),
        how="The config asks for plain scores; a helper multiplies them by head_dim**-0.5 anyway.",
        case="post",
        at="decoder.layers.0.attn",
        cause=r"score scale \S+ = head_dim\*\*-0.5, where the reference has 1$",
        install=partial(_scaled_by, lambda c: c.score_scale * c.head_size**-0.5),
    ),
    SeededBug(
        id="ATT-04",
        name="Heads joined while they are still the outer axis",
        component="attention",
        sources=(
            "https://github.com/jsbaan/transformer-from-scratch/pull/6",
            "https://github.com/ajhalthor/Transformer-Neural-Network/pull/4",
        ),
        how="The context [B, N, T, H] is reshaped to [B, T, N H] with no transpose before it.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause="axes . and . of context are swapped before the reshape",
        install=_attends(_merged_without_transpose),
    ),
    SeededBug(
        id="ATT-07",
        name="All heads share one small projection",
        component="attention",
        sources=("https://github.com/MarcoMeter/episodic-transformer-memory-ppo/pull/22",),
        how="q, k and v are cut into heads first, then each head uses one head_dim square matrix.",
        case="post",
        at="parameters.decoder.layers.0.attn.q_proj.weight",
        cause=r"shape \(7, 7\), where the reference has \(21, 21\)",
        install=partial(swapped, Attention, "__init__", _init_with_shared_matrices),
    ),
    SeededBug(
        id="ATT-08",
        name="Key/value heads tiled",
        component="attention",
        sources=(
            "https://github.com/apple/axlearn/pull/842",
            "https://github.com/onnx/onnx/pull/7274",
        ),
        how="Query head n reads key/value head n mod K in place of n divided by the group size.",
        case="modern",
        at="decoder.layers.0.attn",
        cause="key heads tiled .* where the reference has key heads repeated",
        install=_attends(_tiled),
    ),
    SeededBug(
        id="ATT-09",
        name="Folded heads meet a mask folded the other way",
        component="attention",
        sources=("https://github.com/lsdefine/attention-is-all-you-need-keras/issues/36",),
        how="Heads come first in the folded batch, rows in the repeated mask: rows swap masks.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause="a head reads the mask of another row of the batch",
        install=_attends(_mask_of_another_row),
    ),
    SeededBug(
        id="ATT-11",
        name="Attention along the batch axis",
        component="attention",
        sources=(
            "https://github.com/aipixel/AEMatter/issues/3",
            "https://github.com/rish-16/tokenlearner-pytorch/issues/1",
        ),
        how="The layer takes [B, T, D] for [T, B, D], so the rows of a batch attend to each other.",
        case="post",
        at="decoder.layers.0.attn",
        cause="attention across the batch",
        install=_attends(_across_the_batch),
    ),
    SeededBug(
        id="ATT-12",
        name="head_dim of the config not used for the scale",
        component="attention",
        sources=(
            "https://github.com/InternLM/lmdeploy/pull/2761",
            "https://github.com/huggingface/candle/issues/2358",
            "https://github.com/eole-nlp/eole/pull/78",
        ),
        how="The scale comes from d_model // num_heads although the config gives another head_dim.",
        case="decoder",
        at="decoder.layers.0.attn",
        cause=r"score scale \S+ = \(d_model / num_heads\)\*\*-0.5",
        install=partial(_scaled_by, lambda c: (c.d_model // c.num_heads) ** -0.5),
    ),
)
