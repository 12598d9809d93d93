"""What both twins must implement and what they train on. Imports neither jax nor torch."""

from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError
from transformer_spec.presets import PRESETS
from transformer_spec.train_config import TrainConfig

__all__ = ["PRESETS", "ConfigError", "ModelConfig", "TrainConfig"]
