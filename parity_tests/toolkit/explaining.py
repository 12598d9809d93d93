"""The explanation of the one difference between two functions, without a command around it."""

from collections.abc import Callable

import jax
import numpy as np
import torch

from parity.align.locate import Alignment, State
from parity.explain.edits.edit import Edit
from parity.explain.edits.find import find_edit
from parity.programs.jax_program import record_jax
from parity.programs.torch_program import record_torch


def explained(torch_call: Callable, jax_call: Callable, arrays: dict, inputs: dict) -> Edit | None:
    """The cause of the one difference between two functions of the same arrays."""
    with jax.enable_x64(True):
        tensors = {name: torch.tensor(a, requires_grad=True) for name, a in arrays.items()}
        fed = {name: torch.tensor(a) for name, a in inputs.items()}
        base = record_torch(torch_call, tensors, fed)
        target = record_jax(jax_call, arrays, inputs)
        outputs = {base.outputs["output"]: target.outputs["output"]}
        alignment = Alignment(State.start(base), target, outputs, 1e-10)
        pair = alignment.best_pair()
        return None if pair is None else find_edit(alignment, pair)


def drawn(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(1, 0.5, shape) for name, shape in shapes.items()}
