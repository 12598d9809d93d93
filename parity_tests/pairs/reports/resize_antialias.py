"""Images are made smaller for an embedding: jax smooths them first by default, torch does not.

https://github.com/sayakpaul/cmmd-pytorch/pull/5
"""

import jax
import torch
from torch.nn import functional as F


def shrink(images):
    x = F.interpolate(images, size=(5, 4), mode="bilinear")
    return (x - 0.45) / 0.27


def jax_shrink(images):
    x = jax.image.resize(images, (*images.shape[:2], 5, 4), "bilinear", antialias=False)
    return (x - 0.45) / 0.27


def jax_shrink_smoothed(images):
    x = jax.image.resize(images, (*images.shape[:2], 5, 4), "bilinear")  # fault
    return (x - 0.45) / 0.27


def build_torch():
    torch.manual_seed(0)
    return shrink


def build_jax():
    return jax_shrink


def build_faulty():
    return jax_shrink_smoothed
