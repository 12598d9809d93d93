"""One update, one evaluation, and the Trainer that holds a run's state."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from flax_transformer.decoding import greedy
from flax_transformer.finite import first_bad
from flax_transformer.gradients import Metrics, gradients, in_dtype, token_logits
from flax_transformer.losses import count_correct, count_exact, cross_entropy
from flax_transformer.models import EncoderDecoder, Model, apply, build_model
from flax_transformer.optim import apply_updates, global_norm, make_optimizer
from flax_transformer.state import TrainState, from_named, to_named
from transformer_spec import initializers, naming, streams
from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_spec.state import STREAMS, NamedState
from transformer_spec.train_config import TrainConfig


def parameter_template(model: Model) -> dict:
    """The parameter tree as shapes and dtypes; no memory is taken."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    inputs = (tokens, tokens) if isinstance(model, EncoderDecoder) else (tokens,)
    return jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]


def init_params(
    model: Model,
    scheme: initializers.Scheme,
    key: streams.Words,
    dtype: Literal["float32", "float64"],
) -> dict:
    """Fresh parameters under one of the schemes of `transformer_spec.initializers`.

    They are drawn on the host, and are the torch twin's bit for bit.
    """
    template = parameter_template(model)
    shapes = naming.named_shapes(template)
    named = {}
    for name, shape in shapes.items():
        distribution = initializers.distribution(scheme, name, shapes, model.config)
        own_key = streams.fold_in(key, streams.number(name))
        named[name] = jnp.asarray(initializers.draw(distribution, own_key, shape, dtype))
    return naming.from_named(named, template)


def train_step(
    state: TrainState,
    batch: Batch,
    learning_rate: Array | float,
    *,
    model: Model,
    optimizer: optax.GradientTransformation,
    config: TrainConfig,
) -> tuple[TrainState, Metrics]:
    """One update.

    The gradient norm is taken before clipping; loss and accuracy are of the batch before the
    update, with dropout on.
    """
    key, step = state.dropout_key, state.step
    grads, metrics = gradients(state.params, batch, key, step, model=model, config=config)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = apply_updates(state.params, updates, learning_rate)
    metrics |= {"grad_norm": global_norm(grads)}
    return state.replace(step=step + 1, params=params, opt_state=opt_state), metrics


def compiled_train_step() -> Callable[..., tuple[TrainState, Metrics]]:
    """`train_step`, compiled; the buffers of its `state` are given up to the new one.

    On a CPU, XLA by default hands every small reduction to a thread pool, which costs more than it
    saves: with the pool kept for matrix products the sorting study's update takes 0.8 of the time.
    On a GPU, sums into repeated rows have an order of their own only under an option.
    """
    options: dict[str, str | bool] = {
        "cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"},
        "gpu": {"xla_gpu_deterministic_ops": True},
    }.get(jax.default_backend(), {})
    return jax.jit(
        train_step,
        static_argnames=("model", "optimizer", "config"),
        donate_argnames="state",
        compiler_options=options if options and _compiler_knows(options) else None,
    )


def _compiler_knows(options: dict[str, str | bool]) -> bool:
    """Whether this version of XLA has these options: they come and go."""
    try:
        jax.jit(jnp.negative, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


@partial(jax.jit, static_argnames=("model",))
def eval_step(params: dict, batch: Batch, *, model: Model) -> Metrics:
    """Loss without smoothing, correct tokens and exact rows of one batch, dropout off."""
    logits = token_logits(apply(model, params, **batch.inputs))
    return {
        "loss": cross_entropy(logits, batch.labels, batch.label_mask),
        "correct": count_correct(logits, batch.labels, batch.label_mask),
        "exact": count_exact(logits, batch.labels, batch.label_mask),
    }


class Trainer:
    """A model, its optimizer and their state, behind arrays of NumPy.

    Metrics come back as device scalars: an update does not wait for the one before it.

    Deterministic: two runs on the same devices are equal bit for bit (see `compiled_train_step`).
    """

    def __init__(self, model_config: ModelConfig, train_config: TrainConfig):
        if train_config.dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        self.config = train_config
        self.model = build_model(model_config)
        self.optimizer = make_optimizer(train_config)
        self.train_step = compiled_train_step()
        init_key, dropout_key = streams.split(streams.seed_key(train_config.seed))
        dtype = train_config.parameter_dtype
        params = init_params(self.model, train_config.init, init_key, dtype)
        self.state = TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=self.optimizer.init(params),
            dropout_key=jax.random.wrap_key_data(jnp.asarray(dropout_key), impl=STREAMS),
        )

    def train(self, batch: Batch, learning_rate: float) -> Metrics:
        """One update."""
        self.state, metrics = self.train_step(
            self.state,
            batch,
            learning_rate,
            model=self.model,
            optimizer=self.optimizer,
            config=self.config,
        )
        return metrics

    def evaluate(self, batch: Batch) -> Metrics:
        return eval_step(self._evaluation_parameters(), batch, model=self.model)

    def differences(self) -> dict[str, float]:
        """How far two backends differ; one by itself has no figures."""
        return {}

    def greedy(self, inputs: dict[str, np.ndarray], num_tokens: int) -> np.ndarray:
        return np.asarray(greedy(self.model, self._evaluation_parameters(), inputs, num_tokens))

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters under their torch-style names."""
        return {k: np.array(v) for k, v in naming.to_named(self.state.params).items()}

    def load_parameters(self, named: dict[str, np.ndarray]) -> None:
        """Replace the parameters; the optimizer's state stays."""
        tree = naming.from_named(named, self.state.params)
        params = jax.tree.map(lambda new, old: jnp.array(new, old.dtype), tree, self.state.params)
        self.state = self.state.replace(params=params)

    def _evaluation_parameters(self) -> dict:
        """The parameters in the dtype of arithmetic, which evaluation runs in."""
        return in_dtype(self.state.params, self.config.dtype)

    def named_state(self) -> NamedState:
        """A copy of all that the next update reads."""
        return to_named(self.state)

    def load_state(self, named: NamedState) -> None:
        """Continue from a state that either backend saved."""
        self.state = from_named(named, self.state)

    def first_bad(self, batch: Batch) -> tuple[str | None, str | None]:
        """The first value and the first gradient of an update on `batch` that are not finite."""
        return first_bad(self.state, batch, model=self.model, config=self.config)
