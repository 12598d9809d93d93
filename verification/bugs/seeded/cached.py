"""Mistakes that only show with a key/value cache: queries that are not the first tokens."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from torch_reference import attention, stacks
from torch_reference.attention import Attention
from torch_reference.cache import LayerCache
from torch_reference.masks import causal_mask, decoder_mask
from torch_reference.positions import RelativeBias, RotaryTable, Rotation, rotate
from torch_reference.stacks import locate, self_attention_mask
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


def _moved_by(distance: Callable[[int], int]) -> partial[AbstractContextManager[None]]:
    """A single token that follows `start` others is placed `distance(start)` too far."""

    def wrong(config, tokens, *arguments):
        text, queries, cache = locate(config, tokens, *arguments)
        start = int(queries.indices[0])
        if tokens.shape[1] == 1 and start:
            queries = queries._replace(positions=queries.positions + distance(start))
        return text, queries, cache

    return partial(swapped, stacks, "locate", wrong)


_attend = Attention.forward


def _queries_as_the_first(self: Attention, x, memory=None, mask=None, rotation=None, *rest):
    if rotation is None:
        return _attend(self, x, memory, mask, rotation, *rest)
    first = self.__dict__.setdefault("first_rotation", rotation)
    tables = iter([tuple(table[:, : x.shape[1]] for table in first), rotation])

    def rotate_next(x: Tensor, rotation: Rotation, interleaved: bool) -> Tensor:
        return rotate(x, next(tables), interleaved)

    with swapped(attention, "rotate", rotate_next):
        return _attend(self, x, memory, mask, rotation, *rest)


def _no_mask_while_filling(slot, queries, keys, prefix_mask):
    if queries[0] == 0:
        return torch.ones(1, 1, len(queries), len(keys), dtype=torch.bool, device=keys.device)
    return decoder_mask(slot, queries, keys, prefix_mask)


def _triangle_of(single: bool) -> partial[AbstractContextManager[None]]:
    """The triangle starts at the first key, for calls of one token or for calls of several."""

    def wrong(slot, queries, keys, prefix_mask):
        wrongly = (len(queries) == 1) == single
        form = _aligned_with_the_first_key if wrongly else decoder_mask
        return form(slot, queries, keys, prefix_mask)

    return partial(swapped, stacks, "decoder_mask", wrong)


def _append_clamped(self: LayerCache, k: Tensor, v: Tensor) -> LayerCache:
    """As `jax.lax.dynamic_update_slice` has it: a start too far on is moved back until it fits."""
    count = k.shape[1]
    slots = self.length.clamp(max=self.num_slots - count) + torch.arange(count, device=k.device)
    keys, values = self.keys.index_copy(1, slots, k), self.values.index_copy(1, slots, v)
    return LayerCache(keys, values, self.length + count)


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
    SeededBug(
        id="KV-01",
        name="Decode position one too far",
        component="generation",
        sources=github("microsoft/onnxruntime-genai/pull/2354"),
        how="The length of the past already counts the token that is read: it is placed one later.",
        case="cached",
        at="decoder@3",
        cause=r"^ids are off by \+1$",
        install=_moved_by(lambda start: 1),
    ),
    SeededBug(
        id="KV-03",
        name="Prompt length added at every step",
        component="generation",
        sources=github("skyzh/tiny-llm/pull/46"),
        how="The offset grows by the length of the prompt, 3, with every token, not by 1.",
        case="decoding",
        at="decoder@3",
        cause=r"^ids are off by \+2$",
        install=_moved_by(lambda start: 2 * (start - 3)),
    ),
    SeededBug(
        id="KV-04",
        name="Queries of a decode step rotated as the first",
        component="generation",
        sources=github("RobertCsordas/moeut/pull/6", "pytorch/executorch/pull/2010"),
        how="Keys are rotated by their place in the text, queries by their place in the call.",
        case="cached",
        at="decoder.layers.0.attn@2",
        cause="^rotated by the angles of positions 3 earlier than the reference's$",
        install=partial(swapped, Attention, "forward", _queries_as_the_first),
    ),
    SeededBug(
        id="KV-05",
        name="No causal mask while the cache is filled",
        component="generation",
        sources=github("Mikyx-1/TinyLLM/issues/17", "Mikyx-1/TinyLLM/pull/18"),
        how="The call that reads the prompt into the empty cache has no causal mask.",
        case="cached",
        at="decoder",
        cause="^only the first 3 keys, where the reference has causality, first query at key 0$",
        install=partial(swapped, stacks, "decoder_mask", _no_mask_while_filling),
    ),
    SeededBug(
        id="KV-06",
        name="Chunk aligned with the start of the cache",
        component="generation",
        sources=github("hyprstream/hyprstream/pull/1521", "google/flax/pull/1316"),
        how="A second chunk of several tokens is masked as if it began the text.",
        case="cached",
        at="decoder@2",
        cause="^causality, first query at key 0, where the reference has .* first query at key 3$",
        install=_triangle_of(single=False),
    ),
    SeededBug(
        id="KV-07",
        name="Causal flag and cache mask leave one key",
        component="generation",
        sources=github("google/flax/issues/5591", "google/flax/issues/4505"),
        how="A triangle of one row is combined with the mask of the cache: only key 0 is left.",
        case="cached",
        at="decoder@3",
        cause="^causality, first query at key 0, where the reference has no mask$",
        install=_triangle_of(single=True),
    ),
    SeededBug(
        id="KV-09",
        name="Write past the end of the cache lands inside",
        component="generation",
        sources=github("jax-ml/jax/pull/34257", "jax-ml/jax/issues/21392"),
        how="A write past the last slot is moved back until it fits, over keys still to be seen.",
        case="rolling",
        at="decoder.layers.0.attn@2",
        cause=r"^k_rotated is in rows \[2, 3, 4\], where .* in rows \[3, 4, 0\]$",
        install=partial(swapped, LayerCache, "append", _append_clamped),
    ),
)
