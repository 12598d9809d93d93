"""`F.kl_div(input, target)` is KL(target || input): read the other way round by porters.

https://github.com/pytorch/pytorch/issues/57459
"""

import jax
import jax.numpy as jnp
import torch
from torch.nn import functional as F


def loss(student, teacher):
    target = teacher.softmax(-1)
    return F.kl_div(student.log_softmax(-1), target, reduction="batchmean")


def jax_loss(student, teacher):
    log_p, log_q = jax.nn.log_softmax(student), jax.nn.log_softmax(teacher)
    return jnp.sum(jnp.exp(log_q) * (log_q - log_p)) / len(student)


def reversed_loss(student, teacher):
    log_p, log_q = jax.nn.log_softmax(student), jax.nn.log_softmax(teacher)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q)) / len(student)  # fault


def build_torch():
    torch.manual_seed(0)
    return loss


def build_jax():
    return jax_loss


def build_faulty():
    return reversed_loss
