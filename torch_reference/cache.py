"""Keys and values of the tokens read so far, so that a text is read on and not read again."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from torch_reference.masks import (
    combine_masks,
    decoder_mask,
    padding_mask,
    positions_from,
    two_channel_positions,
)
from transformer_spec.config import Causal, ModelConfig, PrefixLM, TwoChannelRotary

# After every query: a causal mask hides a slot that holds nothing.
EMPTY = 2**31 - 1

# Takes the keys and values of one call of a layer; gives those of all slots.
Remember = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class KVCache(NamedTuple):
    """What attention needs of the tokens read so far, in S slots.

    A full cache has a slot for every token of the text. A rolling one, under a window, has as many
    as the queries of one call see, and the newest tokens take the place of the oldest.

    keys, values: of each layer [B, S, K, H]; the keys are rotated where positions ask for it.
    at: [S], the number in the text of each slot's token. positions: [B, S], their position ids.
    token_mask: bool [B, S], False at padding. prefix_mask: bool [B, S], under PrefixLM alone.
    counts: [B], the tokens read of each row, without padding. length: all that were read, with it.
    """

    keys: tuple[Float[Tensor, "B S K H"], ...]
    values: tuple[Float[Tensor, "B S K H"], ...]
    at: Int[Tensor, "S"]
    positions: Int[Tensor, "B S"]
    token_mask: Bool[Tensor, "B S"]
    prefix_mask: Bool[Tensor, "B S"] | None
    counts: Int[Tensor, "B"]
    length: Int[Tensor, ""]


def make_cache(
    config: ModelConfig,
    batch_size: int,
    length: int,
    chunk: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> KVCache:
    """An empty cache for texts of `length` tokens, of which one call reads at most `chunk`.

    Raises:
        ValueError: a size is below 1, or the length above the config's max_seq_len.
    """
    for name, size in (("batch_size", batch_size), ("length", length), ("chunk", chunk)):
        if size < 1:
            raise ValueError(f"{name}: {size} is not usable; it must be at least 1")
    if length > config.max_seq_len:
        raise ValueError(f"length: {length} is not usable; max_seq_len is {config.max_seq_len}")
    window = _window(config)
    slots = length if window is None else min(length, window + chunk - 1)
    shape = (batch_size, slots, config.kv_heads, config.head_size)
    empty = torch.zeros(shape, dtype=dtype, device=device)
    nowhere = torch.zeros(batch_size, slots, dtype=torch.bool, device=device)
    return KVCache(
        keys=(empty,) * config.decoder_depth,
        values=(empty,) * config.decoder_depth,
        at=torch.full((slots,), EMPTY, device=device),
        positions=torch.zeros(batch_size, slots, dtype=torch.long, device=device),
        token_mask=nowhere,
        prefix_mask=nowhere if isinstance(config.mask, PrefixLM) else None,
        counts=torch.zeros(batch_size, dtype=torch.long, device=device),
        length=torch.zeros((), dtype=torch.long, device=device),
    )


class Writer:
    """Puts the keys and values of one call into a cache's slots, layer by layer."""

    def __init__(self, cache: KVCache, slots: Int[Tensor, "T"]):
        self._cache, self._slots = cache, slots
        self._keys, self._values = list(cache.keys), list(cache.values)

    def of(self, layer: int) -> Remember:
        """What the attention of a layer calls."""

        def remember(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            for held, new in ((self._keys, k), (self._values, v)):
                old = held[layer]
                held[layer] = old.index_copy(1, self._slots, new.to(old.dtype))
            return self._keys[layer], self._values[layer]

        return remember

    def cache(self) -> KVCache:
        """The cache with all that was written so far."""
        return self._cache._replace(keys=tuple(self._keys), values=tuple(self._values))


def read_on(
    config: ModelConfig,
    cache: KVCache,
    tokens: Int[Tensor, "B T"],
    token_mask: Bool[Tensor, "B T"] | None,
    prefix_mask: Bool[Tensor, "B T"] | None,
) -> tuple[Writer, Int[Tensor, "..."], Bool[Tensor, "B 1 T S"] | None]:
    """What writes the keys and values of T more tokens, their positions, and what they see.

    Raises:
        ValueError: the cache has other rows, or no room for the tokens.
    """
    check_room(config, cache, tokens)
    if token_mask is None:
        token_mask = torch.ones_like(tokens, dtype=torch.bool)
    positions = positions_from(token_mask, cache.counts)
    at = cache.length + torch.arange(tokens.shape[1], device=tokens.device)
    slots = at % cache.at.shape[0]
    cache = _admit(cache, at, slots, positions, token_mask, prefix_mask)
    own = decoder_mask(config.mask, at, cache.at, cache.prefix_mask)
    mask = combine_masks(own, padding_mask(cache.token_mask))
    if isinstance(config.position, TwoChannelRotary) and cache.prefix_mask is not None:
        positions = two_channel_positions(positions, cache.prefix_mask)
    return Writer(cache, slots), positions, mask


def _admit(
    cache: KVCache,
    at: Int[Tensor, "T"],
    slots: Int[Tensor, "T"],
    positions: Int[Tensor, "B T"],
    token_mask: Bool[Tensor, "B T"],
    prefix_mask: Bool[Tensor, "B T"] | None,
) -> KVCache:
    """The cache with all that it keeps of T more tokens but their keys and values."""
    prefix = cache.prefix_mask
    if prefix is not None and prefix_mask is not None:
        prefix = prefix.index_copy(1, slots, prefix_mask & token_mask)
    return cache._replace(
        at=cache.at.index_copy(0, slots, at),
        positions=cache.positions.index_copy(1, slots, positions),
        token_mask=cache.token_mask.index_copy(1, slots, token_mask),
        prefix_mask=prefix,
        counts=cache.counts + token_mask.sum(dim=1),
        length=cache.length + at.shape[0],
    )


def check_room(config: ModelConfig, cache: KVCache, tokens: Int[Tensor, "B T"]) -> None:
    """Raise ValueError where tokens do not fit, or would overwrite what their queries see.

    Under `torch.compile` it is not known how many were read before: whoever compiles counts.
    """
    (batch, count), (rows, slots) = tokens.shape, cache.token_mask.shape
    if batch != rows:
        raise ValueError(f"cache: made for {rows} rows, not usable for tokens of {batch}")
    read = 0 if torch.compiler.is_compiling() else int(cache.length)
    window = _window(config)
    rolls = window is not None and window + count - 1 <= slots
    limit = config.max_seq_len if rolls else slots
    if read + count > limit:
        raise ValueError(
            f"cache: no room for {count} tokens after {read}; it holds a text of {limit}, "
            "read in smaller parts or into a larger cache"
        )


def refuse_beside_cache(mask: Tensor | None, positions: Tensor | None) -> None:
    """Raise ValueError for what a call with a cache has no use for."""
    for name, given in (("mask", mask), ("positions", positions)):
        if given is not None:
            raise ValueError(f"{name}: not usable with a cache, which keeps its own")


def _window(config: ModelConfig) -> int | None:
    return config.mask.window if isinstance(config.mask, Causal) else None
