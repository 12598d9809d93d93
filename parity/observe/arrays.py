"""Arrays of either framework as NumPy holds them, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch


def is_array(leaf: Any) -> bool:
    """Whether a leaf of a call's arguments is an array of NumPy, jax or torch."""
    return isinstance(leaf, jax.Array | np.ndarray | torch.Tensor)


def is_float(array: np.ndarray) -> bool:
    """Whether NumPy itself knows the array's dtype as floating: bfloat16 is not."""
    return np.issubdtype(array.dtype, np.floating)


def dtype_name(array: jax.Array | np.ndarray | torch.Tensor) -> str:
    """float32, bfloat16, int64, ..., the same for both frameworks."""
    return str(array.dtype).removeprefix("torch.")


def to_numpy(array: jax.Array | np.ndarray | torch.Tensor) -> np.ndarray:
    """An array of either framework; bfloat16, which NumPy has no type for, comes as float32."""
    if isinstance(array, torch.Tensor):
        array = array.detach()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy(force=True)
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """`torch.tensor`, for bfloat16 too, which NumPy has from ml_dtypes and torch does not read."""
    if array.dtype == jnp.bfloat16:
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """The inverse of `as_tensor`."""
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy(force=True).astype(jnp.bfloat16)
    return tensor.numpy(force=True)
