"""Token embeddings and the output head tied to them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from flax_transformer.masks import check_token_mask
from transformer_spec.config import ModelConfig


class Embed(nn.Module):
    """x = E[token] * scale, with scale sqrt(D) or 1; as a tied head, logits = (s h) E^T.

    The head uses the table unscaled; s is 1, or D**-0.5 in T5.

    Source: Vaswani et al. 2017, section 3.4; Raffel et al. 2020, their code (s).
    """

    config: ModelConfig

    def setup(self):
        shape = (self.config.vocab_size, self.config.d_model)
        self.embedding = self.param("embedding", nn.initializers.normal(1.0), shape, jnp.float32)

    def __call__(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        return self.embedding[tokens] * self.config.embedding_scale

    def attend(self, hidden: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """The logits of a head tied to this table."""
        return jnp.einsum("BTD,VD->BTV", hidden * self.config.head_scale, self.embedding)


def host_values(x: Array) -> np.ndarray | None:
    """The values of an array on the host; None under `jax.jit` and where an accelerator has them.

    To read what an accelerator is still to compute would wait for it.
    """
    if isinstance(x, Tracer):
        return None
    on_host = not isinstance(x, jax.Array) or all(d.platform == "cpu" for d in x.devices())
    return np.asarray(x) if on_host else None


def check_ids(ids: Array, limit: int, name: str) -> None:
    """Raise ValueError unless `ids` are integers in [0, limit).

    Under `jax.jit` and on an accelerator only the dtype is checked, and an id out of range reads
    another row: validate ids before jit, on the host.
    """
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(f"{name}: dtype {ids.dtype} is not usable; it must be an integer type")
    if (values := host_values(ids)) is None:
        return
    low, high = values.min(), values.max()
    if low < 0 or high >= limit:
        raise ValueError(f"{name}: ids {low}..{high} are not usable; they must be in [0, {limit})")


def check_tokens(tokens: Array, config: ModelConfig, name: str) -> None:
    """Raise ValueError unless `tokens` are ids [B, T] of the vocabulary, 1 <= T <= max_seq_len."""
    usable = tokens.ndim == 2 and tokens.shape[0] >= 1 and tokens.shape[1] >= 1
    if not usable:
        raise ValueError(f"{name}: shape {tuple(tokens.shape)} is not usable; it must be [B, T]")
    if tokens.shape[1] > config.max_seq_len:
        length, limit = tokens.shape[1], config.max_seq_len
        raise ValueError(f"{name}: length {length} is not usable; max_seq_len is {limit}")
    check_ids(tokens, config.vocab_size, name)


def check_inputs(config: ModelConfig, tokens: Array, token_mask: Array | None, name: str) -> None:
    """`check_tokens`, and a token mask of the same shape, `source_mask` for `source`."""
    check_tokens(tokens, config, name)
    if token_mask is not None:
        check_token_mask(token_mask, tuple(tokens.shape), f"{name.removesuffix('s')}_mask")


def check_positions(
    positions: Array, config: ModelConfig, shape: tuple[int, ...], two_channels: bool
) -> None:
    """Raise ValueError unless `positions` are ids below max_seq_len in the tokens' shape.

    Of two channels the second counts an answer's tokens from 1, so that it may reach max_seq_len.
    """
    batch, length = shape
    expected = (batch, 2, length) if two_channels else (batch, length)
    if tuple(positions.shape) not in (expected, (1, *expected[1:])):
        found = tuple(positions.shape)
        raise ValueError(f"positions: shape {found} is not usable; expected {expected}")
    check_ids(positions, config.max_seq_len + two_channels, "positions")


def check_token_types(
    token_types: Array | None, config: ModelConfig, shape: tuple[int, ...]
) -> None:
    """Raise ValueError unless `token_types` are segments of the config in the tokens' shape."""
    if token_types is None:
        return
    if not config.num_token_types:
        raise ValueError("token_types: not usable; the config has num_token_types 0")
    if tuple(token_types.shape) != tuple(shape):
        found = tuple(token_types.shape)
        raise ValueError(f"token_types: shape {found} is not usable; expected {tuple(shape)}")
    check_ids(token_types, config.num_token_types, "token_types")
