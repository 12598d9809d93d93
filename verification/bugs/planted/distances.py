"""Mistakes in relative biases: the buckets of distances, and where a bias is added."""

from functools import partial, wraps

import numpy as np

from torch_reference import positions
from torch_reference.blocks import Block
from torch_reference.stacks import Decoder
from transformer_spec.distances import distance_buckets
from verification.bugs.planted.plant import Plant, github, swapped

_forward = Block.forward


def _reaching_twice_as_far(num_buckets: int, max_distance: int) -> np.ndarray:
    return distance_buckets(num_buckets, 2 * max_distance)[: max_distance + 1]


@wraps(_forward)
def _bias_for_memory_too(self, x, mask, memory, memory_mask, rotation, bias, remember=None):
    if not self.cross_attention:
        return _forward(self, x, mask, memory, memory_mask, rotation, bias, remember)
    hand_on = self.cross_attn.register_forward_pre_hook(
        lambda _, arguments: (*arguments, None, bias), prepend=True
    )
    with hand_on:
        return _forward(self, x, mask, memory, memory_mask, rotation, bias, remember)


PLANTS = (
    Plant(
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
    Plant(
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
    Plant(
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
        cause=r"bias is handed to .*0\.cross_attn, the same as to .*0\.attn; .* hands it none",
        install=partial(swapped, Block, "forward", _bias_for_memory_too),
    ),
)
