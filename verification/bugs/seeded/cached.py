"""Mistakes that only show where a text is read on: queries that are not the first tokens."""

from functools import partial

import torch
from torch import Tensor

from torch_reference import stacks
from torch_reference.masks import causal_mask
from torch_reference.positions import RelativeBias, RotaryTable
from torch_reference.stacks import self_attention_mask
from verification.bugs.seeded_bug import SeededBug, github, swapped

_table = RotaryTable.forward
_bias = RelativeBias.forward


def _aligned_with_the_first_key(slot, queries, keys, prefix_mask):
    rows = torch.arange(len(queries), device=queries.device)
    return causal_mask(rows, torch.arange(len(keys), device=keys.device))


def _by_length_alone(self: RotaryTable, positions: Tensor):
    made = self.__dict__.setdefault("tables_by_length", {})
    if positions.shape not in made:
        made[positions.shape] = _table(self, positions)
    return made[positions.shape]


def _from_the_first_query(self: RelativeBias, positions: Tensor, key_positions: Tensor):
    return _bias(self, positions - positions[:, :1], key_positions)


def _unused(config, tokens, token_mask, mask, own) -> Tensor | None:
    """An encoder's mask, which has no causal part, is used."""
    return None if own is not None else self_attention_mask(config, tokens, token_mask, mask, own)


BUGS = (
    SeededBug(
        id="MSK-16",
        name="One query against many keys sees only the first",
        component="mask",
        sources=github(
            "pytorch/pytorch/issues/103082",
            "ml-explore/mlx/issues/2835",
            "pytorch/executorch/issues/22426",
        ),
        how="The causal triangle starts at the first key, wherever the queries stand in the text.",
        case="cached",
        at="decoder@2",
        cause="^causality, first query at key 0, where the reference has .* first query at key 3$",
        install=partial(swapped, stacks, "decoder_mask", _aligned_with_the_first_key),
    ),
    SeededBug(
        id="PE-09",
        name="Rotation table cached without its offset",
        component="positions",
        sources=github("lucidrains/rotary-embedding-torch/issues/11"),
        how="A table is kept by the number of positions: the next as many get the first ones.",
        case="cached",
        at="decoder.rotary@2",
        cause="^rotations of positions 0 to 2, where the ids are 3 to 5$",
        install=partial(swapped, RotaryTable, "forward", _by_length_alone),
    ),
    SeededBug(
        id="PE-19",
        name="Relative bias of the first query at every step",
        component="positions",
        sources=github("huggingface/candle/pull/899", "keras-team/keras-hub/pull/2932"),
        how="Queries are counted from 0 in every call, however many tokens were read before.",
        case="steps",
        at="decoder.rel_bias@2",
        cause="^the bias of queries 1 positions too early$",
        install=partial(swapped, RelativeBias, "forward", _from_the_first_query),
    ),
    SeededBug(
        id="ENC-03",
        name="Cache mask computed and not used",
        component="encoder-decoder",
        sources=github(
            "huggingface/transformers/issues/26564", "huggingface/transformers/pull/26663"
        ),
        how="The mask of the cache's slots is dropped, so that those not yet written are seen.",
        case="steps",
        at="decoder",
        cause="^the mask is not passed to decoder.layers.0$",
        install=partial(swapped, stacks, "self_attention_mask", _unused),
    ),
)
