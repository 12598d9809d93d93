"""Mistakes in dropout."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_reference import attention
from torch_reference.attention import dot_product_attention
from torch_reference.dropout import Dropout
from verification.bugs.seeded_bug import SeededBug, swapped

_init = Dropout.__init__


def _init_with_kept_share(self: Dropout, rate: float) -> None:
    _init(self, 1 - rate)


def _no_dropout(q, k, v, mask=None, *, dropout=None, **rest):
    return dot_product_attention(q, k, v, mask, **rest)


def _one_draw_for_all(q, k, v, mask=None, *, dropout, **rest):
    def drop(weights: Tensor) -> Tensor:
        return weights * dropout(torch.ones_like(weights[0, 0, 0, 0]))

    return dot_product_attention(q, k, v, mask, dropout=drop, **rest)


def _always(q, k, v, mask=None, *, dropout: Dropout, **rest):
    drop = partial(F.dropout, p=dropout.rate, training=True)
    return dot_product_attention(q, k, v, mask, dropout=drop, **rest)


BUGS = (
    SeededBug(
        id="DRP-01",
        name="Rate taken for the share that is kept",
        component="dropout",
        sources=(
            "https://github.com/hunkim/DeepLearningZeroToAll/issues/204",
            "https://github.com/google-research/electra/pull/61",
            "https://github.com/tensorforce/tensorforce/pull/111",
        ),
        how="Dropout drops with probability 1 - rate.",
        case="post",
        at="dropout.decoder.embed_dropout",
        cause="rate 0.9, where the reference has 0.1: the share that is kept",
        install=partial(swapped, Dropout, "__init__", _init_with_kept_share),
    ),
    SeededBug(
        id="DRP-03",
        name="No dropout on attention weights",
        component="dropout",
        sources=("https://github.com/huggingface/transformers/pull/28059",),
        how="The dropout of the config is made but never handed to attention.",
        case="post",
        at="dropout.decoder.layers.0.attn.weights_dropout",
        cause="this dropout is missing",
        install=partial(swapped, attention, "dot_product_attention", _no_dropout),
    ),
    SeededBug(
        id="DRP-04",
        name="One draw for all rows, heads and queries",
        component="dropout",
        sources=("https://github.com/NVIDIA/TransformerEngine/pull/227",),
        how="Which keys are dropped is drawn once and broadcast over the rest of the weights.",
        case="post",
        at="decoder.layers.0.attn",
        cause="one draw is broadcast",
        install=partial(swapped, attention, "dot_product_attention", _one_draw_for_all),
    ),
    SeededBug(
        id="DRP-05",
        name="Dropout in evaluation",
        component="dropout",
        sources=("https://github.com/colehurwitz/IBL_MtM_model/pull/13",),
        how="Attention weights are dropped without a look at whether the model is training.",
        case="post",
        at="decoder.layers.0.attn",
        cause="dropout acts in evaluation",
        install=partial(swapped, attention, "dot_product_attention", _always),
    ),
)
