"""What a model decides while it trains: the slope of each ReLU, the experts of each token.

A choice is not a smooth function of the parameters. Two runs that make the same choices differ by
roundings alone; where one choice differs, they differ by what that choice changes. So the choices
of a run are recorded, and another run can be given them.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.core import Tracer
from jax.experimental import io_callback

import flax_transformer.feed_forward
import flax_transformer.gradients
import flax_transformer.losses
import flax_transformer.moe
import torch_reference.feed_forward
import torch_reference.gradients
import torch_reference.losses
import torch_reference.moe
from parity.observe.arrays import to_numpy

PACKAGES: dict[str, Any] = {"flax": flax_transformer, "torch": torch_reference}


@dataclass(frozen=True)
class Decisions:
    """What a model said of an update's batch, and its choices, in the order of the computation.

    Args:
        logits: of the batch's tokens.
        routed: the logits of routers.
        experts: those that are chosen, [B, T, E] in every layer of every small batch.
        slopes: whether each ReLU passes its input on.
    """

    logits: np.ndarray
    routed: list[np.ndarray]
    experts: list[np.ndarray]
    slopes: list[np.ndarray]

    def count_differences(self, other: "Decisions") -> int:
        """How many choices differ."""
        ours, theirs = ([*x.experts, *x.slopes] for x in (self, other))
        return sum(int((a != b).sum()) for a, b in zip(ours, theirs, strict=True))

    def distance(self, other: "Decisions") -> float:
        """The largest difference of two router logits."""
        pairs = zip(self.routed, other.routed, strict=True)
        return max(float(np.abs(a - b).max()) for a, b in pairs)

    def lead(self, top_k: int) -> float:
        """By how much the closest expert that is chosen leads the first that is not."""
        ordered = (np.sort(x, axis=-1) for x in self.routed)
        return min(float((x[..., -top_k] - x[..., -top_k - 1]).min()) for x in ordered)


@dataclass
class DecisionRecorder:
    """What was said and decided since `take`."""

    values: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, kind: str, value: Any) -> None:
        """Under `jax.jit` the value of each call, once it is known."""
        if isinstance(value, Tracer):
            jax.debug.callback(lambda x: self.add(kind, np.asarray(x)), value, ordered=True)
        else:
            self.values.setdefault(kind, []).append(to_numpy(value).copy())

    def take(self) -> Decisions:
        jax.effects_barrier()
        routed, experts, slopes = (self.values.pop(k, []) for k in ("routed", "experts", "slopes"))
        return Decisions(np.concatenate(self.values.pop("logits")), routed, experts, slopes)


@contextmanager
def recording_decisions(side: str) -> Iterator[DecisionRecorder]:
    """Hear what a Trainer of a twin decides; it must not have been compiled before."""
    package, recorder = PACKAGES[side], DecisionRecorder()
    choose, say = package.moe.chosen_experts, package.gradients.token_logits
    relu = package.feed_forward.ACTIVATIONS["relu"]

    def chosen_experts(logits: Any, top_k: int) -> Any:
        recorder.add("routed", logits)
        chosen = choose(logits, top_k)
        recorder.add("experts", chosen)
        return chosen

    def token_logits(outputs: Any) -> Any:
        logits = say(outputs)
        recorder.add("logits", logits)
        return logits

    def recorded_relu(x: Any) -> Any:
        recorder.add("slopes", x > 0)
        return relu(x)

    with (
        patch.object(package.moe, "chosen_experts", chosen_experts),
        patch.object(package.gradients, "token_logits", token_logits),
        patch.dict(package.feed_forward.ACTIVATIONS, relu=recorded_relu),
    ):
        yield recorder


@dataclass
class DecisionFeed:
    """The choices of the next update, until the model has made them."""

    left: dict[str, deque[np.ndarray]] = field(default_factory=dict)

    def give(self, decided: Decisions) -> None:
        jax.effects_barrier()
        assert not any(self.left.values()), "the last update left choices over"
        kinds = {"experts": decided.experts, "balance": decided.experts, "slopes": decided.slopes}
        self.left = {kind: deque(values) for kind, values in kinds.items()}

    def take(self, kind: str, like: Any) -> Any:
        """The next choice of a kind, in the shape of `like`; under `jax.jit` that of each call."""
        if isinstance(like, torch.Tensor):
            return torch.tensor(self.left[kind].popleft(), device=like.device)
        shape = jax.ShapeDtypeStruct(like.shape, jnp.bool_)
        return io_callback(lambda: self.left[kind].popleft(), shape, ordered=True)


@contextmanager
def replaying_decisions(side: str) -> Iterator[DecisionFeed]:
    """A Trainer of a twin makes the choices it is given, whatever its own would be."""
    package, given = PACKAGES[side], DecisionFeed()
    where = jnp.where if side == "flax" else torch.where

    def relu(x: Any) -> Any:
        return where(given.take("slopes", x), x, 0.0)

    with (
        patch.object(package.moe, "chosen_experts", lambda x, top_k: given.take("experts", x)),
        patch.object(package.losses, "chosen_experts", lambda x, top_k: given.take("balance", x)),
        patch.dict(package.feed_forward.ACTIVATIONS, relu=relu),
    ):
        yield given
