"""A divergence divided by the number of logits in torch, by that of examples in the port.

https://github.com/facebookresearch/deit/issues/61
"""

import jax
import jax.numpy as jnp
import torch
from torch.nn import functional as F


def loss(student, teacher):
    return F.kl_div(
        student.log_softmax(1), teacher.log_softmax(1), reduction="mean", log_target=True
    )


def jax_loss(student, teacher):
    log_p, log_q = jax.nn.log_softmax(student), jax.nn.log_softmax(teacher)
    return jnp.mean(jnp.exp(log_q) * (log_q - log_p))


def loss_by_example(student, teacher):
    log_p, log_q = jax.nn.log_softmax(student), jax.nn.log_softmax(teacher)
    terms = jnp.exp(log_q) * (log_q - log_p)
    return jnp.mean(jnp.sum(terms, -1))  # fault


def build_torch():
    torch.manual_seed(0)
    return loss


def build_jax():
    return jax_loss


def build_faulty():
    return loss_by_example
