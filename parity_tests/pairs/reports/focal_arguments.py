"""A focal loss is handed its two constants in the other order.

https://github.com/qubvel/segmentation_models/issues/258
"""

import numpy as np
import optax
import torch
from torch.nn import functional as F

ALPHA, GAMMA = 0.25, 2.0


def loss(logits, labels):
    plain = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    p = logits.sigmoid()
    missed = p * (1 - labels) + (1 - p) * labels
    weight = ALPHA * labels + (1 - ALPHA) * (1 - labels)
    return (weight * missed**GAMMA * plain).mean()


def focal(logits, labels, gamma, alpha):
    return optax.sigmoid_focal_loss(logits, labels, alpha=alpha, gamma=gamma).mean()  # fault


def jax_loss(logits, labels):
    return focal(logits, labels, GAMMA, ALPHA)


def loss_of_swapped(logits, labels):
    return focal(logits, labels, ALPHA, GAMMA)  # fault


def inputs():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(4, 5)), rng.integers(0, 2, (4, 5)).astype(float)]


def build_torch():
    torch.manual_seed(0)
    return loss


def build_jax():
    return jax_loss


def build_faulty():
    return loss_of_swapped
