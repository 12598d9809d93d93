"""TrainConfig: everything about a training run but its architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformer_spec import fields, schedules
from transformer_spec.fields import ConfigError, check_types, field, require
from transformer_spec.initializers import Scheme
from transformer_spec.schedules import Constant, InverseSqrt, WarmupConstant, WarmupCosine


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Data, optimizer and schedule. Each number is stated once, for both frameworks."""

    task: Literal["sort", "language_model"] | None = field("the data to train on")
    batch_size: int = field("sequences per update")
    accumulation: int = field("small batches that each update's batch is split into", 1)
    epochs: int | None = field("passes over the training data (or give steps)", None)
    steps: int | None = field("updates (or give epochs)", None)
    learning_rate: float = field("peak rate; a factor on the curve under InverseSqrt")
    schedule: Constant | WarmupConstant | InverseSqrt | WarmupCosine = field("rate over updates")
    beta1: float = field("Adam: decay of the first moment", 0.9)
    beta2: float = field("Adam: decay of the second moment", 0.999)
    eps: float = field("Adam: added to the root, outside of it", 1e-8)
    weight_decay: float = field("decoupled (AdamW); 0 is Adam", 0.0)
    decay_all: bool = field("decay norms, biases and embeddings too", False)
    clip_norm: float | None = field("clip gradients to this global norm; none: never", None)
    label_smoothing: float = field("probability mass spread over the vocabulary", 0.0)
    router_loss: float = field("weight of a mixture's balance loss", 0.0)
    init: Scheme = field("distribution of fresh parameters", "xavier_uniform")
    seed: int = field("seed of data, initialization and dropout", 0)
    dtype: Literal["float32", "float64", "bfloat16"] = field(
        "of arithmetic, parameters and updates; bfloat16: of arithmetic alone",
        "float32",
    )
    compile: bool = field("torch.compile the step (torch alone; jax always compiles)", False)
    log_every: int = field("updates between two records of metrics", 50)
    eval_every: int | None = field("updates between two evaluations; none: once an epoch", None)
    save_every: int | None = field("updates between two checkpoints; none: once an epoch", None)
    keep: int = field("newest checkpoints to keep, beside the best by eval_loss", 3)
    data: str | None = field("text file to train on; none: CPython's own documentation", None)

    def __post_init__(self):
        check_types(self)
        counts = ("batch_size", "accumulation", "steps", "epochs", "keep")
        for name in (*counts, "log_every", "eval_every", "save_every"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "at least 1")
        whole = self.batch_size % self.accumulation == 0
        expected = f"divisible by accumulation {self.accumulation}"
        require(whole, "batch_size", self.batch_size, expected)
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError(f"steps: {self.steps}, epochs: {self.epochs}; give exactly one")
        fields.require_positive("learning_rate", self.learning_rate)
        fields.require_positive("eps", self.eps)
        for name in ("beta1", "beta2", "label_smoothing"):
            fields.require_rate(name, getattr(self, name))
        finite = 0 <= self.weight_decay < float("inf")
        require(finite, "weight_decay", self.weight_decay, "a finite number, 0 or above")
        finite = 0 <= self.router_loss < float("inf")
        require(finite, "router_loss", self.router_loss, "a finite number, 0 or above")
        if self.clip_norm is not None:
            fields.require_positive("clip_norm", self.clip_norm)
        require(0 <= self.seed < 2**32, "seed", self.seed, "in [0, 2**32)")

    @property
    def parameter_dtype(self) -> Literal["float32", "float64"]:
        """Of parameters, moments and updates: bfloat16 would round most updates away."""
        return "float32" if self.dtype == "bfloat16" else self.dtype

    def total_steps(self, steps_per_epoch: int) -> int:
        """The number of updates of the whole run."""
        total = self.steps if self.steps is not None else (self.epochs or 0) * steps_per_epoch
        schedules.check_total(self.schedule, total)
        return total

    def to_dict(self) -> dict[str, Any]:
        return fields.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TrainConfig":
        return fields.from_dict(cls, data)
