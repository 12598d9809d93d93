"""Token embeddings and the output head tied to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torch_reference.masks import check_token_mask
from transformer_spec.config import ModelConfig


class Embed(nn.Module):
    """x = E[token] * scale, with scale sqrt(D) or 1; as a tied head, logits = (s h) E^T.

    The head uses the table unscaled; s is 1, or D**-0.5 in T5.

    Source: Vaswani et al. 2017, section 3.4; Raffel et al. 2020, their code (s).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.randn(config.vocab_size, config.d_model))

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.weight[tokens] * self.config.embedding_scale

    def attend(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """The logits of a head tied to this table."""
        return torch.einsum("BTD,VD->BTV", hidden * self.config.head_scale, self.weight)


def host_values(x: Tensor) -> Tensor | None:
    """The values of a tensor on the host; None under `torch.compile` and where a device has them.

    To read what an accelerator is still to compute would wait for it.
    """
    return None if torch.compiler.is_compiling() or x.device.type != "cpu" else x


@contextmanager
def unchecked_ids() -> Iterator[None]:
    """Inside, the values of ids are not read, only their dtypes: they are known to be right.

    Differences: jax compiles a training step, and a compiled one reads no values.
    """
    token = _checking.set(False)
    try:
        yield
    finally:
        _checking.reset(token)


_checking = ContextVar("_checking", default=True)


def check_ids(ids: Tensor, limit: int, name: str) -> None:
    """Raise ValueError unless `ids` are integers in [0, limit).

    Under `torch.compile` and on an accelerator only the dtype is checked, and an id out of range
    reads another row or ends the program: validate ids before, on the host.
    """
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        kind = str(ids.dtype).removeprefix("torch.")
        raise ValueError(f"{name}: dtype {kind} is not usable; it must be an integer type")
    if (values := host_values(ids)) is None or not _checking.get():
        return
    low, high = (int(bound) for bound in torch.aminmax(values))
    if low < 0 or high >= limit:
        raise ValueError(f"{name}: ids {low}..{high} are not usable; they must be in [0, {limit})")


def check_tokens(tokens: Tensor, config: ModelConfig, name: str) -> None:
    """Raise ValueError unless `tokens` are ids [B, T] of the vocabulary, 1 <= T <= max_seq_len."""
    usable = tokens.ndim == 2 and tokens.shape[0] >= 1 and tokens.shape[1] >= 1
    if not usable:
        raise ValueError(f"{name}: shape {tuple(tokens.shape)} is not usable; it must be [B, T]")
    if tokens.shape[1] > config.max_seq_len:
        length, limit = tokens.shape[1], config.max_seq_len
        raise ValueError(f"{name}: length {length} is not usable; max_seq_len is {limit}")
    check_ids(tokens, config.vocab_size, name)


def check_inputs(config: ModelConfig, tokens: Tensor, token_mask: Tensor | None, name: str) -> None:
    """`check_tokens`, and a token mask of the same shape, `source_mask` for `source`."""
    check_tokens(tokens, config, name)
    if token_mask is not None:
        check_token_mask(token_mask, tuple(tokens.shape), f"{name.removesuffix('s')}_mask")


def check_positions(
    positions: Tensor, config: ModelConfig, shape: tuple[int, ...], two_channels: bool
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
    token_types: Tensor | None, config: ModelConfig, shape: tuple[int, ...]
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
