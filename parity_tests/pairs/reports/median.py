"""Of an even number of values torch's median is the lower middle one, jax's the mean of both.

https://github.com/pytorch/pytorch/issues/1837
"""

import jax.numpy as jnp
import torch


def centred(x):
    return x - x.median(-1, keepdim=True).values


def jax_centred(x):
    return x - jnp.sort(x, -1)[..., x.shape[-1] // 2 - 1, None]


def centred_by_mean_of_both(x):
    return x - jnp.median(x, -1, keepdims=True)  # fault


def build_torch():
    torch.manual_seed(0)
    return centred


def build_jax():
    return jax_centred


def build_faulty():
    return centred_by_mean_of_both
