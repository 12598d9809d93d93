"""Frames of speech under a Hann window: torch's is periodic by default, jnp's symmetric.

https://github.com/Blaizzy/mlx-audio/pull/920
"""

import jax.numpy as jnp
import torch


def power(frames):
    window = torch.hann_window(8, dtype=frames.dtype)
    return torch.fft.rfft(frames * window).abs() ** 2


def jax_power(frames):
    window = jnp.hanning(9)[:-1].astype(frames.dtype)
    return jnp.abs(jnp.fft.rfft(frames * window)) ** 2


def power_of_symmetric(frames):
    window = jnp.hanning(8).astype(frames.dtype)  # fault
    frames = frames * window  # fault
    return jnp.abs(jnp.fft.rfft(frames)) ** 2


def build_torch():
    torch.manual_seed(0)
    return power


def build_jax():
    return jax_power


def build_faulty():
    return power_of_symmetric
