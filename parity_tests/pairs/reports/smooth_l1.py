"""A loss that is square near zero: torch's smooth L1 is the Huber loss divided by its width.

https://github.com/pytorch/pytorch/issues/48595
"""

import optax
import torch
from torch.nn import functional as F


def loss(predicted, wanted):
    return F.smooth_l1_loss(predicted, wanted, beta=0.5)


def jax_loss(predicted, wanted):
    return optax.huber_loss(predicted, wanted, delta=0.5).mean() / 0.5


def huber(predicted, wanted):
    return optax.huber_loss(predicted, wanted, delta=0.5).mean()  # fault


def build_torch():
    torch.manual_seed(0)
    return loss


def build_jax():
    return jax_loss


def build_faulty():
    return huber
