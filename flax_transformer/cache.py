"""Keys and values of the tokens that were read, so that a text grows without being read again."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from flax_transformer.embeddings import host_values
from transformer_spec.config import Causal, ModelConfig, PrefixLM


class LayerCache(NamedTuple):
    """Keys and values of one layer in S slots; token i of the text is in slot i mod S.

    A full cache has a slot for every token of the text. A rolling one, under a window, has as many
    as the queries of one call see, and the newest tokens take the place of the oldest.

    keys, values: [B, S, K, H]; the keys are rotated where positions ask for it. length: how many
    tokens of the text were read.
    """

    keys: Float[Array, "B S K H"]
    values: Float[Array, "B S K H"]
    length: Int[Array, ""]

    @property
    def num_slots(self) -> int:
        return self.keys.shape[1]

    def append(self, k: Float[Array, "B T K H"], v: Float[Array, "B T K H"]) -> "LayerCache":
        """The cache with the keys and values of T more tokens, rounded to its own dtype."""
        slots = (self.length + jnp.arange(k.shape[1])) % self.num_slots
        return LayerCache(
            self.keys.at[:, slots].set(k.astype(self.keys.dtype)),
            self.values.at[:, slots].set(v.astype(self.values.dtype)),
            self.length + k.shape[1],
        )

    def token_indices(self, count: int) -> Int[Array, "S"]:
        """The number in the text of each slot's token, once `count` more tokens are appended.

        A slot without a token has the number of its first one, which a causal mask hides.
        """
        slots = jnp.arange(self.num_slots)
        last = self.length + (count - 1)
        return slots + self.num_slots * jnp.maximum((last - slots) // self.num_slots, 0)


class KVCache(NamedTuple):
    """What a decoder needs of the tokens that were read of a text of at most L.

    layers: the keys and values of each block. token_mask: bool [B, L], False at padding and where
    nothing was read. prefix_mask: bool [B, L], under PrefixLM alone.
    """

    layers: tuple[LayerCache, ...]
    token_mask: Bool[Array, "B L"]
    prefix_mask: Bool[Array, "B L"] | None

    @property
    def length(self) -> Int[Array, ""]:
        """How many tokens were read, padding included."""
        return self.layers[0].length

    def with_masks(
        self, token_mask: Bool[Array, "B T"], prefix_mask: Bool[Array, "B T"] | None
    ) -> "KVCache":
        """The cache with the masks of T more tokens, whose keys and values are still to come."""
        index = self.length + jnp.arange(token_mask.shape[1])
        prefix = self.prefix_mask
        if prefix is None and prefix_mask is not None:
            raise ValueError("prefix_mask: not usable with a cache that was made under no PrefixLM")
        if prefix is not None and prefix_mask is not None:
            prefix = prefix.at[:, index].set(prefix_mask)
        return KVCache(self.layers, self.token_mask.at[:, index].set(token_mask), prefix)


def make_cache(
    config: ModelConfig,
    batch_size: int,
    length: int,
    chunk: int = 1,
    dtype: DTypeLike = jnp.float32,
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

    def layer_cache(window: int | None) -> LayerCache:
        slots = length if window is None else min(length, window + chunk - 1)
        empty = jnp.zeros((batch_size, slots, config.kv_heads, config.head_size), dtype)
        return LayerCache(empty, empty, jnp.zeros((), jnp.int32))

    nothing = jnp.zeros((batch_size, length), bool)
    return KVCache(
        tuple(layer_cache(window) for window in _windows(config)),
        token_mask=nothing,
        prefix_mask=nothing if isinstance(config.mask, PrefixLM) else None,
    )


def check_room(config: ModelConfig, cache: KVCache, tokens: Int[Array, "B T"]) -> None:
    """Raise ValueError where tokens do not fit, or would overwrite what their queries see.

    How many tokens were read is not known under `jax.jit`: count them before.
    """
    (batch, count), (rows, length) = tokens.shape, cache.token_mask.shape
    if batch != rows:
        raise ValueError(f"cache: made for {rows} rows, not usable for tokens of {batch}")
    values = host_values(cache.length)
    read = 0 if values is None else int(values)
    if read + count > length:
        raise ValueError(
            f"cache: no room for {count} tokens after {read}; it holds a text of {length}"
        )
    chunks = [
        layer.num_slots - window + 1
        for layer, window in zip(cache.layers, _windows(config), strict=True)
        if window is not None and layer.num_slots < length
    ]
    if chunks and count > min(chunks):
        raise ValueError(
            f"cache: {count} tokens in one call overwrite keys that their queries see; "
            f"it was made for calls of at most {min(chunks)}"
        )


def refuse_beside_cache(mask: Array | None, positions: Array | None) -> None:
    """Raise ValueError for what a call with a cache has no use for."""
    for name, given in (("mask", mask), ("positions", positions)):
        if given is not None:
            raise ValueError(f"{name}: not usable with a cache, which keeps its own")


def _windows(config: ModelConfig) -> list[int | None]:
    """The window of each of a decoder's blocks; None where it sees the whole text."""
    masks = [config.layer_mask(i) for i in range(config.decoder_depth)]
    return [mask.window if isinstance(mask, Causal) else None for mask in masks]
