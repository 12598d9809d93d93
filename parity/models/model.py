"""A model as named arrays and a call that takes them: the same thing for either framework."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax
    import torch
    from torch import nn


@dataclass(frozen=True)
class TorchModel:
    """A torch module, or a function of tensors.

    Args:
        arrays: parameters and buffers in the order of their definition, by `state_dict` name; a
            tied one once, under its first name. Buffers that `state_dict` leaves out are here too.
        trainable: the names that gradients are taken of.
        call: (tensors, args, kwargs) to the outputs as the model gives them. Tensors may be of any
            dtype; those left out keep the model's own values. Neither the user's module nor
            the given tensors are changed.
        module: the user's own module; None for a function.
        options: further keyword arguments, already part of `call`.
        aliases: names of tied tensors, each with the name that `arrays` has it under.
    """

    arrays: dict[str, np.ndarray]
    trainable: frozenset[str]
    call: Callable[[Mapping[str, "torch.Tensor"], Sequence[Any], Mapping[str, Any]], Any]
    module: "nn.Module | None" = None
    options: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JaxModel:
    """A model of any JAX library, or a function of a pytree.

    Args:
        arrays: every array by its path, joined with "/": "params/layers_0/kernel",
            "batch_stats/bn/mean".
        trainable: the names that gradients are taken of.
        call: (arrays, args, kwargs) to the outputs as the model gives them, without updated
            statistics. Arrays may be of any dtype; those left out keep the model's own values.
        loaded: whether the arrays are the user's own, or only what initialization made.
        options: further keyword arguments, already part of `call`.
        kinds: for arrays of layers that their library or class tells: the layer's library and
            class, such as "linen.Dense", "nnx.Conv", "equinox.Linear", "haiku.LSTM", or the name
            of a class of the user's own; in the order of calls where that is known.
    """

    arrays: dict[str, np.ndarray]
    trainable: frozenset[str]
    call: Callable[[Mapping[str, "jax.Array"], Sequence[Any], Mapping[str, Any]], Any]
    loaded: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
