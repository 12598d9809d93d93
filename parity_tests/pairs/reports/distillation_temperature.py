"""A distillation loss lacks the square of the temperature.

https://github.com/IntelLabs/distiller/issues/122
"""

import jax
import jax.numpy as jnp
import torch
from torch.nn import functional as F

TEMPERATURE = 3.0


def loss(student, teacher):
    soft = F.log_softmax(student / TEMPERATURE, -1)
    target = F.softmax(teacher / TEMPERATURE, -1)
    return F.kl_div(soft, target, reduction="batchmean") * TEMPERATURE**2


def divergence(student, teacher):
    log_p = jax.nn.log_softmax(student / TEMPERATURE)
    log_q = jax.nn.log_softmax(teacher / TEMPERATURE)
    return jnp.sum(jnp.exp(log_q) * (log_q - log_p), -1).mean()  # fault


def jax_loss(student, teacher):
    return divergence(student, teacher) * TEMPERATURE**2


def build_torch():
    torch.manual_seed(0)
    return loss


def build_jax():
    return jax_loss


def build_faulty():
    return divergence
