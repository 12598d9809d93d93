"""Two trainers stepped side by side, from the same weights on the same batches."""

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.state import Named, NamedState
from transformer_training.trainer import Metrics, Trainer


class Lockstep:
    """A Trainer whose results are the first's, and which measures how far the second differs.

    Args:
        first, second: the trainers; the second is given the first's parameters.
    """

    def __init__(self, first: Trainer, second: Trainer):
        self.first, self.second = first, second
        second.load_parameters(first.parameters())

    def train(self, batch: Batch, learning_rate: float) -> Metrics:
        self._first_metrics = self.first.train(batch, learning_rate)
        self._second_metrics = self.second.train(batch, learning_rate)
        return self._first_metrics

    def differences(self) -> dict[str, float]:
        """Relative for loss and gradient norm; the largest absolute one for parameters."""
        first, second = self.first.parameters(), self.second.parameters()
        return {
            "loss_difference": self._relative("loss"),
            "grad_norm_difference": self._relative("grad_norm"),
            "parameter_difference": max(float(np.abs(first[n] - second[n]).max()) for n in first),
        }

    def evaluate(self, batch: Batch) -> Metrics:
        return self.first.evaluate(batch)

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray:
        return self.first.greedy(inputs, num_tokens)

    def parameters(self) -> Named:
        return self.first.parameters()

    def load_parameters(self, named: Named) -> None:
        """Replace the parameters of both."""
        self.first.load_parameters(named)
        self.second.load_parameters(named)

    def named_state(self) -> NamedState:
        return self.first.named_state()

    def load_state(self, named: NamedState) -> None:
        """Both continue from one state: how far they differed before is not kept."""
        self.first.load_state(named)
        self.second.load_state(named)

    def first_bad(self, batch: Batch) -> tuple[str | None, str | None]:
        """What the first finds or, where it finds nothing, the second."""
        found = self.first.first_bad(batch)
        return found if any(found) else self.second.first_bad(batch)

    def _relative(self, name: str) -> float:
        first, second = float(self._first_metrics[name]), float(self._second_metrics[name])
        return abs(first - second) / abs(second)
