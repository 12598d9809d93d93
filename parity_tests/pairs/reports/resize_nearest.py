"""Masks made larger: torch's nearest pixel is that of the corner, jax's that of the centre.

https://github.com/pytorch/pytorch/issues/34808
"""

import jax
import jax.numpy as jnp
import torch
from torch.nn import functional as F


def enlarge(x):
    return F.interpolate(x, size=7, mode="nearest") ** 2


def jax_enlarge(x):
    index = jnp.arange(7) * x.shape[-1] // 7
    return x[..., index] ** 2


def jax_enlarge_by_centres(x):
    return jax.image.resize(x, (*x.shape[:-1], 7), "nearest") ** 2  # fault


def build_torch():
    torch.manual_seed(0)
    return enlarge


def build_jax():
    return jax_enlarge


def build_faulty():
    return jax_enlarge_by_centres
