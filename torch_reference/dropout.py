"""Dropout: which values survive is a pure function of a key."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from torch_reference import random
from transformer_spec import streams


def survivors(key: random.Key, rate: float, shape: tuple[int, ...]) -> Bool[Tensor, "..."]:
    """True with probability 1 - rate: `jax.random.bernoulli(key, jnp.float32(1 - rate), shape)`."""
    # jax takes a float32 uniform from the upper 23 bits of a word.
    upper = (random.bits(key, shape) >> 9) & ((1 << 23) - 1)
    return upper < round((1 - rate) * 2**23)


class Dropout(nn.Module):
    """y = x * survives / (1 - rate) in training, y = x in evaluation.

    Without a key of its own, each call draws one from torch's generator.

    Args:
        rate: the probability that a value becomes 0 (Keras and Flax too name this one; the
            `keep_prob` of old TensorFlow is 1 - rate).
    Source: Srivastava et al. 2014, section 4, scaled in training instead of in evaluation.
    """

    key: Tensor | None

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate
        self.register_buffer("key", None, persistent=False)

    def forward(self, x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
        if not self.training or self.rate == 0:
            return x
        key = random.fresh_key(x.device) if self.key is None else self.key
        return torch.where(survivors(key, self.rate, x.shape), x / (1 - self.rate), 0.0)


def set_dropout_keys(model: nn.Module, key: random.Key) -> None:
    """Give every Dropout the key that Linen's `make_rng` makes for it from this one."""
    layers = {n: m for n, m in model.named_modules() if isinstance(m, Dropout)}
    numbers = torch.tensor([streams.first_call(name) for name in layers], device=key.device)
    for layer, own in zip(layers.values(), random.fold_in(key, numbers), strict=True):
        layer.key = own
