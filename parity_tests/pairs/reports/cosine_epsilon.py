"""The smallest norm in a cosine similarity: optax's epsilon bounds the square of the norm.

https://github.com/google-deepmind/optax/pull/1703
"""

import optax
import torch
from torch.nn import functional as F

SMALLEST = 0.2


def similarity(a, b):
    a, b = F.normalize(0.1 * a, dim=-1, eps=SMALLEST), F.normalize(0.1 * b, dim=-1, eps=SMALLEST)
    return (a * b).sum(-1)


def jax_similarity(a, b):
    return optax.cosine_similarity(0.1 * a, 0.1 * b, epsilon=SMALLEST**2)


def unsquared(a, b):
    return optax.cosine_similarity(0.1 * a, 0.1 * b, epsilon=SMALLEST)  # fault


def build_torch():
    torch.manual_seed(0)
    return similarity


def build_jax():
    return jax_similarity


def build_faulty():
    return unsquared
