"""What a training run asks of a backend, and what it gets back."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.state import Named, NamedState


class Scalar(Protocol):
    """A number that may still be on the device: to convert it waits until it is computed."""

    def __float__(self) -> float: ...

    def __int__(self) -> int: ...


# Of an update: loss, correct, grad_norm. Of an evaluation: loss, correct, exact.
Metrics = Mapping[str, Scalar]


@runtime_checkable
class Trainer(Protocol):
    """A model, its optimizer and their state, behind arrays of NumPy.

    `flax_transformer.training.Trainer` and `torch_reference.training.Trainer` are two,
    `transformer_training.lockstep.Lockstep` is both at once.
    """

    def train(self, batch: Batch, learning_rate: float) -> Metrics:
        """One update; its loss (mean over tokens), correct tokens, and norm before clipping."""
        ...

    def evaluate(self, batch: Batch) -> Metrics:
        """Loss without smoothing, correct tokens and exact rows of a batch, dropout off."""
        ...

    def differences(self) -> dict[str, float]:
        """Figures on how far two backends differ; empty where there is only one."""
        ...

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray:
        """`num_tokens` ids after each row of the inputs, the likeliest at each step."""
        ...

    def parameters(self) -> Named:
        """A copy of the parameters under their torch-style names."""
        ...

    def load_parameters(self, named: Named) -> None:
        """Replace the parameters; the optimizer's state stays."""
        ...

    def named_state(self) -> NamedState:
        """A copy of all that the next update reads."""
        ...

    def load_state(self, named: NamedState) -> None:
        """Continue from a state that either backend saved."""
        ...

    def first_bad(self, batch: Batch) -> tuple[str | None, str | None]:
        """The first value and the first gradient of an update on `batch` that are not finite."""
        ...
