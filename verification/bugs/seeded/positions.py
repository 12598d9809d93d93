"""Mistakes in positions: the table, which of its rows is read, and the bias of a distance."""

from functools import partial, wraps

import numpy as np
import torch
from torch import Tensor, nn

from torch_reference import positions, stacks
from torch_reference.blocks import Block
from torch_reference.masks import two_channel_positions
from torch_reference.stacks import Decoder, Stack
from transformer_spec.config import ModelConfig
from transformer_spec.distances import distance_buckets
from verification.bugs.seeded_bug import SeededBug, github, swapped

_inputs = Stack.inputs


def _spread_over_one_interval_less(max_seq_len: int, d_model: int) -> np.ndarray:
    sines = np.arange((d_model + 1) // 2)
    angles = np.arange(max_seq_len)[:, None] / 10000.0 ** (sines / (len(sines) - 1))
    table = np.empty((max_seq_len, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


class _AfterPadding(nn.Embedding):
    """A table whose row 0 belongs to padding: position t is row t + 1."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + 1)


def _make_after_padding(config: ModelConfig) -> nn.Module:
    return _AfterPadding(config.max_seq_len, config.d_model)


def _all_at_zero(self, tokens, positions, token_types, embed):
    return _inputs(self, tokens, torch.zeros_like(positions), token_types, embed)


def _columns(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)


def _never_reset(self, tokens, positions, token_types, embed):
    return _inputs(self, tokens, _columns(tokens), token_types, embed)


def _running_on(positions: Tensor, prefix_mask: Tensor) -> Tensor:
    channels = two_channel_positions(positions, prefix_mask)
    return torch.stack([positions.expand(prefix_mask.shape), channels[:, 1]], dim=1)


def _without_row_index(positions: Tensor, prefix_mask: Tensor) -> Tensor:
    channels = _running_on(positions, prefix_mask).clone()
    for length in prefix_mask.sum(dim=1).tolist():
        channels[length:, 0] = length - 1
    return channels


_forward = Block.forward


def _reaching_twice_as_far(num_buckets: int, max_distance: int) -> np.ndarray:
    return distance_buckets(num_buckets, 2 * max_distance)[: max_distance + 1]


@wraps(_forward)
def _bias_for_memory_too(self, x, mask, memory, memory_mask, rotation, bias, cache=None):
    if not self.cross_attention:
        return _forward(self, x, mask, memory, memory_mask, rotation, bias, cache)
    hand_on = self.cross_attn.register_forward_pre_hook(
        lambda _, arguments: (*arguments, None, bias), prepend=True
    )
    with hand_on:
        return _forward(self, x, mask, memory, memory_mask, rotation, bias, cache)


BUGS = (
    SeededBug(
        id="PE-12",
        name="Wavelengths spread over one interval less",
        component="positions",
        sources=("https://github.com/tensorflow/tensor2tensor/issues/1423",),
        how="The exponent is i / (n - 1) for the n sines, not i / n.",
        case="encoder_decoder",
        at="encoder.pos_embed",
        cause=r"exponents i / \(7 - 1\).* where the reference has .* exponents 2i / 13",
        install=partial(swapped, positions, "sinusoidal_table", _spread_over_one_interval_less),
    ),
    SeededBug(
        id="PE-20",
        name="Learned positions of a family that counts from another row",
        component="positions",
        sources=(
            "https://github.com/huggingface/transformers/issues/1761",
            "https://github.com/huggingface/sentence-transformers/pull/3879",
            "https://github.com/huggingface/transformers/issues/5285",
        ),
        how="Twins disagree on the first row: position t reads row t + 1, past the padding index.",
        case="decoder",
        at="decoder.pos_embed",
        cause=r"reads row id \+1, where the reference reads row id \+0",
        install=partial(swapped, stacks, "make_positions", _make_after_padding),
    ),
    SeededBug(
        id="PE-21",
        name="Zeros in place of positions",
        component="positions",
        sources=("https://github.com/HKU-MedAI/MGCA/issues/13",),
        how="Ids that are all zero arrive where positions are expected: every token is the first.",
        case="modern",
        at="decoder",
        cause="all ids are 0",
        install=partial(swapped, Stack, "inputs", _all_at_zero),
    ),
    SeededBug(
        id="PE-22",
        name="Padding on the left counts as tokens",
        component="positions",
        sources=(
            "https://github.com/ndif-team/nnsight/issues/672",
            "https://github.com/huggingface/transformers/issues/21080",
            "https://github.com/huggingface/transformers/issues/22161",
            "https://github.com/unslothai/unsloth/pull/3795",
        ),
        how="Positions are column numbers, whatever the token mask says.",
        case="encoder_decoder",
        at="encoder",
        cause="ids count 0, 1, 2, .* along the row",
        install=partial(swapped, stacks, "positions_from", _columns),
    ),
    SeededBug(
        id="PE-23",
        name="Positions run on from one packed document to the next",
        component="positions",
        sources=(
            "https://github.com/huggingface/nanoVLM/issues/201",
            "https://github.com/hiyouga/LlamaFactory/pull/7318",
        ),
        how="Column numbers replace the caller's positions, which restart at each document.",
        case="decoder",
        at="decoder",
        cause="ids count 0, 1, 2, .* along the row",
        install=partial(swapped, Stack, "inputs", _never_reset),
    ),
    SeededBug(
        id="PE-24",
        name="Sequence position runs on past the mask token",
        component="positions",
        sources=github("zai-org/ChatGLM-6B/issues/134", "zai-org/ChatGLM-6B/issues/1258"),
        how="The first channel counts on through the answer and does not stay at the prefix's end.",
        case="channels",
        at="decoder",
        cause=r"channel 0: ids run on .* the reference's stay at 1, 2, 6, 3, 5, the last of prefix",
        install=partial(swapped, stacks, "two_channel_positions", _running_on),
    ),
    SeededBug(
        id="PE-25",
        name="Positions of one row written into all",
        component="positions",
        sources=github("zai-org/ChatGLM-6B/issues/833"),
        how="ids[n:] = last, with n a row's length, writes to whole rows from the n-th on.",
        case="channels",
        at="decoder",
        cause=r"channel 0: rows 2, 3, 4 hold 1, 2, 3 throughout, .* rows 0, 1 run on past",
        install=partial(swapped, stacks, "two_channel_positions", _without_row_index),
    ),
    SeededBug(
        id="PE-15",
        name="Distances sorted into the wrong buckets",
        component="positions",
        sources=github("lucidrains/x-transformers/pull/10", "ml-explore/mlx-examples/pull/113"),
        how="The shared buckets are spread over twice the distance that max_distance says.",
        case="relative",
        at="encoder.rel_bias",
        cause="^as with max_distance 19 to 24, where the reference's is 9 to 12$",
        install=partial(swapped, positions, "distance_buckets", _reaching_twice_as_far),
    ),
    SeededBug(
        id="PE-16",
        name="Decoder distances bucketed for both directions",
        component="positions",
        sources=github(
            "huggingface/transformers/pull/8518", "huggingface/transformers/issues/6285"
        ),
        how="Half of the decoder's buckets wait for keys after the query, which it never sees.",
        case="relative",
        at="decoder.rel_bias",
        cause="buckets are split between the directions, where the reference's are all for keys up",
        install=partial(swapped, Decoder, "bidirectional", property(lambda self: True)),
    ),
    SeededBug(
        id="PE-17",
        name="Relative bias in cross-attention",
        component="positions",
        sources=github(
            "huggingface/transformers/pull/8518",
            "huggingface/transformers/issues/7323",
            "guillaume-be/rust-bert/pull/171",
        ),
        how="The bias of the decoder's own distances is added to the scores of its memory too.",
        case="relative",
        at="decoder.layers.0",
        cause=r"bias is passed to .*0\.cross_attn, the same as to .*0\.attn; .* passes none",
        install=partial(swapped, Block, "forward", _bias_for_memory_too),
    ),
)
