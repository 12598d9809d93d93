"""Both twins stepped side by side, from the same weights on the same batches."""

import numpy as np

from flax_transformer import training as flax_training
from torch_reference import training as torch_training
from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_spec.state import NamedState
from transformer_spec.train_config import TrainConfig


class Trainer:
    """A Trainer whose metrics are the Flax twin's and which knows how far the torch twin is off."""

    def __init__(self, model_config: ModelConfig, train_config: TrainConfig):
        self.flax = flax_training.Trainer(model_config, train_config)
        self.torch = torch_training.Trainer(model_config, train_config)
        self.torch.load_parameters(self.flax.parameters())

    def train(self, batch: Batch, learning_rate: float) -> flax_training.Metrics:
        self._flax_metrics = self.flax.train(batch, learning_rate)
        self._torch_metrics = self.torch.train(batch, learning_rate)
        return self._flax_metrics

    def differences(self) -> dict[str, float]:
        """Relative for loss and gradient norm, absolute and largest of all for parameters."""
        ours, theirs = self.flax.parameters(), self.torch.parameters()
        return {
            "loss_difference": self._apart("loss"),
            "grad_norm_difference": self._apart("grad_norm"),
            "parameter_difference": max(float(np.abs(ours[n] - theirs[n]).max()) for n in ours),
        }

    def evaluate(self, batch: Batch) -> flax_training.Metrics:
        return self.flax.evaluate(batch)

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray:
        return self.flax.greedy(inputs, num_tokens)

    def parameters(self) -> dict[str, np.ndarray]:
        return self.flax.parameters()

    def load_parameters(self, named: dict[str, np.ndarray]) -> None:
        """Replace the parameters of both."""
        self.flax.load_parameters(named)
        self.torch.load_parameters(named)

    def named_state(self) -> NamedState:
        """The Flax twin's."""
        return self.flax.named_state()

    def load_state(self, named: NamedState) -> None:
        """Both go on from there: what they were apart is forgotten."""
        self.flax.load_state(named)
        self.torch.load_state(named)

    def first_bad(self, batch: Batch) -> tuple[str | None, str | None]:
        """What the Flax twin finds or, where it finds nothing, the torch twin."""
        found = self.flax.first_bad(batch)
        return found if any(found) else self.torch.first_bad(batch)

    def _apart(self, name: str) -> float:
        ours, theirs = float(self._flax_metrics[name]), float(self._torch_metrics[name])
        return abs(ours - theirs) / abs(theirs)
