"""Smoothed labels: torch spreads over all classes, the port over all but the right one.

https://github.com/pytorch/pytorch/issues/148884
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.nn import functional as F


def loss(logits, labels):
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def jax_loss(logits, labels):
    targets = optax.smooth_labels(jax.nn.one_hot(labels, 5, dtype=logits.dtype), 0.1)
    return optax.softmax_cross_entropy(logits, targets).mean()


def loss_of_others(logits, labels):
    right = jax.nn.one_hot(labels, 5, dtype=bool)
    targets = jnp.where(right, 0.9, 0.1 / 4)  # fault
    return optax.softmax_cross_entropy(logits, targets).mean()  # fault


def inputs():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(7, 5)), rng.integers(0, 5, 7)]


def build_torch():
    torch.manual_seed(0)
    return loss


def build_jax():
    return jax_loss


def build_faulty():
    return loss_of_others
