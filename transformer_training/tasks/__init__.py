"""What the models train on: batches in NumPy, made from a seed and a number."""

from transformer_spec.config import MixtureOfExperts, ModelConfig
from transformer_spec.fields import ConfigError, require
from transformer_spec.train_config import TrainConfig
from transformer_training.tasks.language_model import LanguageModelTask
from transformer_training.tasks.sort import SortTask
from transformer_training.tasks.task import Task


def make_task(model: ModelConfig, train: TrainConfig) -> Task:
    """The task of the TrainConfig, its data read and checked."""
    routed = model.arch == "decoder" and isinstance(model.ffn, MixtureOfExperts)
    expected = "0 but for a decoder with MixtureOfExperts"
    require(routed or train.router_loss == 0, "router_loss", train.router_loss, expected)
    match train.task:
        case "sort":
            return SortTask(model, train)
        case "language_model":
            return LanguageModelTask(model, train)
        case None:
            raise ConfigError(
                "task: none is not usable; this preset's own data is not shipped, choose from "
                "language_model (for a decoder), sort (for an encoder_decoder)"
            )
