"""A checkpoint read and written again: is every tensor the same, bit for bit?"""

from hashlib import sha256

import numpy as np

from transformer_hub.families import FAMILIES
from transformer_hub.formats.lazy_tensor import LazyTensor
from transformer_spec.config import ModelConfig
from transformer_spec.parameters import parameter_shapes
from verification.twins.weights import hostile_parameters


def count_kept_tensors(family: str, config: ModelConfig) -> tuple[int, int]:
    """Of how many stored tensors, how many come back with the same SHA-256."""
    layout = FAMILIES[family].layout(config)
    stored = dict(layout.to_theirs(hostile_parameters(parameter_shapes(config), seed=0)))
    lazy = {n: LazyTensor(a.shape, a.dtype, lambda a=a: a) for n, a in stored.items()}
    back = dict(layout.to_theirs(dict(layout.to_ours(lazy))))
    same = [name for name, array in stored.items() if _digest(back[name]) == _digest(array)]
    return len(same), len(stored)


def _digest(array: np.ndarray) -> tuple:
    return array.shape, array.dtype, sha256(array.tobytes()).hexdigest()
