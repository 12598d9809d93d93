"""Keys and values of the tokens read so far, so that a text is read on and not read again."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from flax_transformer.masks import (
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
Remember = Callable[[Array, Array], tuple[Array, Array]]


class KVCache(NamedTuple):
    """What attention needs of the tokens read so far, in S slots.

    A full cache has a slot for every token of the text. A rolling one, under a window, has as many
    as the queries of one call see, and the newest tokens take the place of the oldest.

    keys, values: of each layer [B, S, K, H]; the keys are rotated where positions ask for it.
    at: [S], the number in the text of each slot's token. positions: [B, S], their position ids.
    token_mask: bool [B, S], False at padding. prefix_mask: bool [B, S], under PrefixLM alone.
    counts: [B], the tokens read of each row, without padding. length: all that were read, with it.
    """

    keys: tuple[Float[Array, "B S K H"], ...]
    values: tuple[Float[Array, "B S K H"], ...]
    at: Int[Array, "S"]
    positions: Int[Array, "B S"]
    token_mask: Bool[Array, "B S"]
    prefix_mask: Bool[Array, "B S"] | None
    counts: Int[Array, "B"]
    length: Int[Array, ""]


def make_cache(
    config: ModelConfig, batch_size: int, length: int, chunk: int = 1, dtype: Any = jnp.float32
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
    empty = jnp.zeros((batch_size, slots, config.kv_heads, config.head_size), dtype)
    nowhere = jnp.zeros((batch_size, slots), bool)
    return KVCache(
        keys=(empty,) * config.decoder_depth,
        values=(empty,) * config.decoder_depth,
        at=jnp.full(slots, EMPTY, jnp.int32),
        positions=jnp.zeros((batch_size, slots), jnp.int32),
        token_mask=nowhere,
        prefix_mask=nowhere if isinstance(config.mask, PrefixLM) else None,
        counts=jnp.zeros(batch_size, jnp.int32),
        length=jnp.zeros((), jnp.int32),
    )


class Writer:
    """Puts the keys and values of one call into a cache's slots, layer by layer."""

    def __init__(self, cache: KVCache, slots: Int[Array, "T"]):
        self._cache, self._slots = cache, slots
        self._keys, self._values = list(cache.keys), list(cache.values)

    def of(self, layer: int) -> Remember:
        """What the attention of a layer calls."""

        def remember(k: Array, v: Array) -> tuple[Array, Array]:
            for held, new in ((self._keys, k), (self._values, v)):
                old = held[layer]
                held[layer] = old.at[:, self._slots].set(new.astype(old.dtype))
            return self._keys[layer], self._values[layer]

        return remember

    def cache(self) -> KVCache:
        """The cache with all that was written so far."""
        return self._cache._replace(keys=tuple(self._keys), values=tuple(self._values))


def read_on(
    config: ModelConfig,
    cache: KVCache,
    tokens: Int[Array, "B T"],
    token_mask: Bool[Array, "B T"] | None,
    prefix_mask: Bool[Array, "B T"] | None,
) -> tuple[Writer, Int[Array, "..."], Bool[Array, "B 1 T S"] | None]:
    """What writes the keys and values of T more tokens, their positions, and what they see.

    Raises:
        ValueError: the cache has other rows, or no room for the tokens.
    """
    check_room(config, cache, tokens)
    if token_mask is None:
        token_mask = jnp.ones(tokens.shape, bool)
    positions = positions_from(token_mask, cache.counts)
    at = cache.length + jnp.arange(tokens.shape[1], dtype=jnp.int32)
    slots = at % cache.at.shape[0]
    cache = _admit(cache, at, slots, positions, token_mask, prefix_mask)
    own = decoder_mask(config.mask, at, cache.at, cache.prefix_mask)
    mask = combine_masks(own, padding_mask(cache.token_mask))
    if isinstance(config.position, TwoChannelRotary) and cache.prefix_mask is not None:
        positions = two_channel_positions(positions, cache.prefix_mask)
    return Writer(cache, slots), positions, mask


def _admit(
    cache: KVCache,
    at: Int[Array, "T"],
    slots: Int[Array, "T"],
    positions: Int[Array, "B T"],
    token_mask: Bool[Array, "B T"],
    prefix_mask: Bool[Array, "B T"] | None,
) -> KVCache:
    """The cache with all that it keeps of T more tokens but their keys and values."""
    prefix = cache.prefix_mask
    if prefix is not None and prefix_mask is not None:
        prefix = prefix.at[:, slots].set(prefix_mask & token_mask)
    return cache._replace(
        at=cache.at.at[slots].set(at),
        positions=cache.positions.at[:, slots].set(positions.astype(jnp.int32)),
        token_mask=cache.token_mask.at[:, slots].set(token_mask),
        prefix_mask=prefix,
        counts=cache.counts + token_mask.sum(axis=1, dtype=jnp.int32),
        length=cache.length + jnp.int32(at.shape[0]),
    )


def check_room(config: ModelConfig, cache: KVCache, tokens: Int[Array, "B T"]) -> None:
    """Raise ValueError where tokens do not fit, or would overwrite what their queries see.

    Under `jax.jit` it is not known how many were read before: whoever jits counts beforehand.
    """
    (batch, count), (rows, slots) = tokens.shape, cache.token_mask.shape
    if batch != rows:
        raise ValueError(f"cache: made for {rows} rows, not usable for tokens of {batch}")
    read = 0 if isinstance(cache.length, Tracer) else int(cache.length)
    window = _window(config)
    rolls = window is not None and window + count - 1 <= slots
    limit = config.max_seq_len if rolls else slots
    if read + count > limit:
        raise ValueError(
            f"cache: no room for {count} tokens after {read}; it holds a text of {limit}, "
            "read in smaller parts or into a larger cache"
        )


def refuse_beside_cache(mask: Array | None, positions: Array | None) -> None:
    """Raise ValueError for what a call with a cache has no use for."""
    for name, given in (("mask", mask), ("positions", positions)):
        if given is not None:
            raise ValueError(f"{name}: not usable with a cache, which keeps its own")


def _window(config: ModelConfig) -> int | None:
    return config.mask.window if isinstance(config.mask, Causal) else None
