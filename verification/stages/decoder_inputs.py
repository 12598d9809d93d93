"""What a decoder reads to predict labels, made of them by both sides: ids, which must be equal."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import torch

import flax_transformer.losses as flax_losses
import torch_reference.losses as torch_losses
from parity.explain.causes.evidence import Cause
from verification.stages.finding import Finding

# All apart from each other, and from every label.
START, PADDING, LOWEST, VOCABULARY, IGNORED = 3, 2, 5, 23, (-100, -1)
BATCH, LENGTH = 3, 7


def compare_decoder_inputs() -> list[Finding]:
    """Where the twins' decoder inputs differ, and why."""
    labels = _labels()
    ours = np.asarray(flax_losses.shift_right(jnp.asarray(labels), START, PADDING))
    theirs = torch_losses.shift_right(torch.tensor(labels), START, PADDING).numpy()
    if np.array_equal(ours, theirs):
        return []
    right, wrong = _identify(labels, ours), _identify(labels, theirs)
    causes = list(_differences(right, wrong)) if right and wrong else []
    return [Finding("loss.inputs", "the decoder's inputs", None, causes)]


def _labels() -> np.ndarray:
    """Ignored ones of both kinds, at the end of a row and inside it."""
    labels = np.random.default_rng(47).integers(LOWEST, VOCABULARY, (BATCH, LENGTH))
    for row, ignored in enumerate(IGNORED):
        labels[row, 2] = labels[row, -3:] = ignored
    return labels


@dataclass(frozen=True)
class _Form:
    """How ids follow from labels.

    Args:
        step: input t is label t - step.
        first: what stands before the first label; none where nothing does.
        ignored: what becomes of each label below 0.
    """

    step: int
    first: int | None
    ignored: dict[int, int]


def _identify(labels: np.ndarray, ids: np.ndarray) -> _Form | None:
    if ids.shape != labels.shape:
        return None
    for step in (1, 0, 2, -1):
        read = np.roll(labels, step, 1)[:, max(step, 0) : LENGTH + min(step, 0)]
        seen = ids[:, max(step, 0) : LENGTH + min(step, 0)]
        if np.array_equal(seen[read >= 0], read[read >= 0]):
            values = [np.unique(seen[read == ignored]) for ignored in IGNORED]
            first = np.unique(ids[:, :step]) if step > 0 else []
            if len(first) < 2 and all(len(value) == 1 for value in values):
                ignored = {i: int(v[0]) for i, v in zip(IGNORED, values, strict=True)}
                return _Form(step, int(first[0]) if len(first) else None, ignored)
    return None


def _differences(right: _Form, wrong: _Form) -> Iterator[Cause]:
    if wrong.step != right.step:
        text = (
            f"input t is label t{-wrong.step:+d}, where the reference has label t{-right.step:+d}"
        )
        yield Cause(text, f"shift the labels right by {right.step}", 0.0)
    elif wrong.first != right.first:
        text = f"the first input is {wrong.first}, where the reference has {right.first}"
        yield Cause(text, f"begin with {right.first}, the start token", 0.0)
    for label, value in wrong.ignored.items():
        if value != right.ignored[label]:
            kept = f"the ignored label {label} is " + ("kept" if value == label else f"{value}")
            text = f"{kept}, where the reference has {right.ignored[label]}"
            yield Cause(text, f"put {right.ignored[label]}, the padding, in its place", 0.0)
