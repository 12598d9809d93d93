"""An update's gradient where its batch is computed in small batches, up to what is clipped.

The torch side takes a whole update; what it leaves in `.grad` is what its optimizer was given.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import flax_transformer.gradients as flax_gradients
import torch_reference.training as torch_training
from flax_transformer.models import build_model
from parity.explain.causes.evidence import Cause, deviation, explains
from parity.observe.flax_side import compile_fast
from transformer_spec import naming
from transformer_spec.batch import Batch
from transformer_spec.parameters import parameter_shapes
from transformer_spec.train_config import TrainConfig
from verification.stages.finding import Finding
from verification.twins.hostile import hostile_config, tokens
from verification.twins.weights import hostile_parameters

PARTS, ROWS, LENGTH = 3, 6, 7
# Far below the gradient's norm, and that of each small batch.
CLIP_NORM = 0.01
MODEL = hostile_config(num_layers=1)


@dataclass(frozen=True)
class Given:
    """The reference: each small batch's share in the gradient, as one vector, and its tokens."""

    shares: np.ndarray
    counts: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """The gradient of each small batch's own mean loss."""
        return self.shares * (self.counts.sum() / self.counts)[:, None]


def compare_accumulation(train: TrainConfig, tolerance: float = 1e-12) -> Iterator[Finding]:
    """Where the clipped gradients of an update in small batches differ, and why."""
    config = replace(
        train,
        dtype="float64",
        batch_size=ROWS,
        accumulation=PARTS,
        clip_norm=CLIP_NORM,
        label_smoothing=0.1,
    )
    given = _reference(config)
    right = clipped(given.shares.sum(0))
    found = _candidate(config)
    error = deviation(right, found)
    if error <= tolerance:
        return
    for at, text, fix, form in _forms(given):
        if explains(form, found):
            yield Finding(at, "clipped gradient", error, [Cause(text, fix, deviation(form, found))])
            return
    yield Finding("accumulation", f"clipped gradient of {PARTS} small batches", error)


def clipped(gradient: np.ndarray) -> np.ndarray:
    return gradient * min(1.0, CLIP_NORM / float(np.linalg.norm(gradient)))


def _forms(given: Given) -> Iterator[tuple[str, str, str, np.ndarray]]:
    """(where, what, how to put it right, the gradient it gives)."""
    running = np.zeros_like(given.shares[0])
    for share in given.shares:
        running = clipped(running + share)
    once = "clip once, after the last small batch"
    text = "the sum of gradients is clipped after every small batch"
    yield "optimizer.clip", text, once, running
    each = clipped(np.sum([clipped(share) for share in given.shares], 0))
    text = "the gradient of each small batch is clipped by itself"
    yield "optimizer.clip", text, once, each
    text = "mean of the small batches' means"
    fix = "divide each loss by the number of tokens of the whole batch"
    yield "loss", text, fix, clipped(given.means.mean(0))
    text = "the gradient of the last small batch alone"
    yield "accumulation", text, "reset gradients once an update", clipped(given.shares[-1])


@cache
def _batch() -> Batch:
    """Small batches of different numbers of tokens."""
    ids = tokens(MODEL.vocab_size, ROWS, LENGTH + 1)
    counts = np.array([7, 7, 5, 4, 2, 1])
    return Batch({"tokens": ids[:, :-1]}, ids[:, 1:], np.arange(LENGTH) < counts[:, None])


@cache
def _parameters() -> dict[str, np.ndarray]:
    return hostile_parameters(parameter_shapes(MODEL), seed=0)


@cache
def _reference(config: TrainConfig) -> Given:
    """From the Flax side's loss of each small batch, by itself."""
    model = build_model(MODEL)
    template = jax.eval_shape(
        lambda: model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    )
    params = jax.tree.map(jnp.asarray, naming.from_named(_parameters(), template))
    total = jnp.asarray(_batch().label_mask.sum())

    def gradient(part: Batch) -> Any:
        def loss(p: Any) -> Any:
            key = jax.random.key(0)
            return flax_gradients.part_loss(p, part, total, key, model=model, config=config)[0]

        return jax.grad(loss)(params)

    compiled = compile_fast(gradient)
    parts = _batch().parts(PARTS)
    shares = [_flat(naming.to_named(compiled(part))) for part in parts]
    return Given(np.stack(shares), np.array([int(part.label_mask.sum()) for part in parts]))


def _candidate(config: TrainConfig) -> np.ndarray:
    trainer = torch_training.Trainer(MODEL, config)
    trainer.load_parameters(_parameters())
    trainer.train(_batch(), 0.0)
    named = trainer.state.model.named_parameters()
    grads = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in named}
    return _flat({name: grad.numpy(force=True) for name, grad in grads.items()})


def _flat(named: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.asarray(named[name]).ravel() for name in sorted(named)])
