"""One update, one evaluation, and the Trainer that holds a run's state."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_reference.decoding import greedy
from torch_reference.embeddings import unchecked_ids
from torch_reference.finite import first_bad
from torch_reference.gradients import Metrics, gradients, in_dtype, token_logits
from torch_reference.losses import count_correct, count_exact, cross_entropy
from torch_reference.models import Model, build_model
from torch_reference.optim import apply_updates, clip_by_global_norm, global_norm, make_optimizer
from torch_reference.state import TrainState, from_named, to_named
from transformer_spec import initializers, naming, streams
from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_spec.state import NamedState
from transformer_spec.train_config import TrainConfig


@torch.no_grad()
def init_params(model: Model, scheme: initializers.Scheme, key: streams.Words) -> None:
    """Fresh parameters, in place, under one of the schemes of `transformer_spec.initializers`.

    They are drawn on the host, and are the Flax twin's bit for bit. A parameter narrower than
    float32 is drawn in float32 and rounded.
    """
    parameters = dict(model.named_parameters())
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    for name, parameter in parameters.items():
        distribution = initializers.distribution(scheme, name, shapes, model.config)
        own_key = streams.fold_in(key, streams.number(name))
        dtype = "float64" if parameter.dtype == torch.float64 else "float32"
        drawn = initializers.draw(distribution, own_key, shapes[name], dtype)
        parameter.copy_(torch.from_numpy(drawn))


def train_step(
    state: TrainState,
    batch: Batch,
    learning_rate: float,
    *,
    forward: Callable[..., Any],
    config: TrainConfig,
) -> Metrics:
    """One update of `state`, in place. `forward` is the model's call, or that compiled.

    The gradient norm is taken before clipping; loss and accuracy are of the batch before the
    update, with dropout on.
    """
    key, step = state.dropout_key, state.step
    with unchecked_ids():
        grads, metrics = gradients(state.model, batch, key, step, forward=forward, config=config)
    norm = global_norm(grads)
    if config.clip_norm is not None:
        clip_by_global_norm(grads, norm, config.clip_norm)
    apply_updates(state.optimizer, learning_rate)
    state.step += 1
    return metrics | {"grad_norm": norm}


@torch.no_grad()
def eval_step(model: Model, batch: Batch) -> Metrics:
    """Loss without smoothing, correct tokens and exact rows of one batch, dropout off."""
    model.eval()
    logits = token_logits(model(**batch.inputs))
    return {
        "loss": cross_entropy(logits, batch.labels, batch.label_mask),
        "correct": count_correct(logits, batch.labels, batch.label_mask),
        "exact": count_exact(logits, batch.labels, batch.label_mask),
    }


@contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Deterministic algorithms inside, the process's own setting again afterwards.

    By default threads add the gradient of an embedding's repeated rows in any order. On CUDA an
    operation that has no deterministic algorithm warns and runs; on a CPU it is an error.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


class Trainer:
    """A model, its optimizer and their state, behind arrays of NumPy.

    Metrics come back as device scalars: on a GPU an update does not wait for the one before it.

    Deterministic: with the same number of threads, two runs are equal bit for bit. On CUDA, cuBLAS
    needs CUBLAS_WORKSPACE_CONFIG before its first use in a process; it is set to `:4096:8` here
    unless the environment has it.
    """

    def __init__(self, model_config: ModelConfig, train_config: TrainConfig):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.config = train_config
        model = build_model(model_config).to(getattr(torch, train_config.parameter_dtype))
        init_key, dropout_key = streams.split(streams.seed_key(train_config.seed))
        init_params(model, train_config.init, init_key)
        model.to(self.device)
        optimizer = make_optimizer(model, train_config)
        words = torch.from_numpy(dropout_key.view(np.int32)).to(self.device)
        self.state = TrainState(0, model, optimizer, words)
        forward = in_dtype(model, train_config.dtype)
        self.forward = torch.compile(forward) if train_config.compile else forward

    def train(self, batch: Batch, learning_rate: float) -> Metrics:
        """One update."""
        with _deterministic(self.device):
            return train_step(
                self.state,
                self._on_device(batch),
                learning_rate,
                forward=self.forward,
                config=self.config,
            )

    def evaluate(self, batch: Batch) -> Metrics:
        with _deterministic(self.device):
            return eval_step(self._evaluation_model(), self._on_device(batch))

    def differences(self) -> dict[str, float]:
        """How far two backends differ; one by itself has no figures."""
        return {}

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray:
        model = self._evaluation_model().eval()
        tensors = {name: self._tensor(array) for name, array in inputs.items()}
        return greedy(model, tensors, num_tokens).numpy(force=True)

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters under their names."""
        named = self.state.model.named_parameters()
        return {name: p.numpy(force=True).copy() for name, p in named}

    @torch.no_grad()
    def load_parameters(self, named: dict[str, np.ndarray]) -> None:
        """Replace the parameters; the optimizer's state stays."""
        parameters = dict(self.state.model.named_parameters())
        naming.check_named(named, {name: tuple(p.shape) for name, p in parameters.items()})
        for name, parameter in parameters.items():
            parameter.copy_(torch.as_tensor(named[name]))

    def _evaluation_model(self) -> Model:
        """The model in the dtype of arithmetic, which evaluation runs in."""
        if self.config.dtype == self.config.parameter_dtype:
            return self.state.model
        return copy.deepcopy(self.state.model).to(getattr(torch, self.config.dtype))

    def _on_device(self, batch: Batch) -> Batch:
        inputs = {name: self._tensor(array) for name, array in batch.inputs.items()}
        return Batch(inputs, self._tensor(batch.labels), self._tensor(batch.label_mask))

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.tensor(array)
        return tensor.to(self.device, torch.int64 if tensor.dtype == torch.int32 else None)

    def named_state(self) -> NamedState:
        """A copy of all that the next update reads."""
        return to_named(self.state)

    def load_state(self, named: NamedState) -> None:
        """Continue from a state that either backend saved."""
        self.state = from_named(named, self.state)

    def first_bad(self, batch: Batch) -> tuple[str | None, str | None]:
        """The first value and the first gradient of an update on `batch` that are not finite."""
        return first_bad(self.state, self._on_device(batch), config=self.config)
