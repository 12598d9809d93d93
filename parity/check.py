"""Our own twins held against each other: a preset at full size, on hostile weights."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import flax_transformer
import torch_reference
from parity.lockstep import Trainer
from parity.pair import Result, compare
from parity.weights import hostile_parameters
from transformer_spec import naming, parameters, presets
from transformer_spec.command_line import without_dropout
from transformer_spec.config import ModelConfig
from transformer_spec.schedules import learning_rate
from transformer_spec.tasks import make_task

BATCH, LENGTH, KEYS = 2, 11, 7
TRAINING_TOLERANCE = 1e-10
Report = Callable[[int, dict[str, float]], None]


def check(preset: str, dtype: str = "float64", gradients: bool = False, seed: int = 0) -> Result:
    """Every value, and with `gradients` every gradient, of a preset's twins.

    Raises:
        ConfigError: there is no such preset.
    """
    config = without_dropout(presets.get(preset).model)
    inputs = example_inputs(config, seed)
    flax_model = flax_transformer.build_model(config)
    named = hostile_parameters(parameters.parameter_shapes(config), seed, config.embedding_scale)
    arrays: dict[str, Any] = {name: jnp.asarray(x) for name, x in inputs.items()}
    shapes = jax.eval_shape(lambda: flax_model.init(jax.random.key(0), **arrays))
    return compare(
        torch_reference.build_model(config).eval(),
        flax_model,
        {"params": naming.from_named(named, shapes["params"])},
        inputs,
        dtype=dtype,
        gradients=gradients,
        reference="flax",
        sizes=sizes_of(config),
    )


def sizes_of(config: ModelConfig) -> dict[str, float]:
    """The numbers that a wrong constant is most often made of."""
    return {
        "head_dim": config.head_size,
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "d_model / num_heads": config.d_model // config.num_heads,
        "d_ff": config.d_ff,
    }


def example_inputs(config: ModelConfig, seed: int) -> dict[str, np.ndarray]:
    """Random ids, with padding on the left of one row and on the right of the other."""
    rng = np.random.default_rng([seed, 41])
    length = min(LENGTH, config.max_seq_len)

    def ids(width: int) -> np.ndarray:
        return rng.integers(0, config.vocab_size, (BATCH, width))

    def mask(width: int) -> np.ndarray:
        at = np.arange(width)
        return np.stack([at >= min(2, width - 1), at < max(width - 3, 1)])

    if config.arch != "encoder_decoder":
        return {"tokens": ids(length), "token_mask": mask(length)}
    keys = min(KEYS, config.max_seq_len)
    return {
        "source": ids(keys),
        "target": ids(length),
        "source_mask": mask(keys),
        "target_mask": mask(length),
    }


def check_steps(preset: str, dtype: str, steps: int, report: Report) -> dict[str, float]:
    """The largest differences over `steps` updates of both twins from the same weights.

    Args:
        dtype: float64 or float32.
        report: called after every update.
    """
    chosen = presets.get(preset)
    train = replace(chosen.train, dtype=dtype, steps=steps, epochs=None)
    task = make_task(without_dropout(chosen.model), train)
    twins = Trainer(task.model, train)
    worst: dict[str, float] = {}
    for update in range(1, steps + 1):
        rate = learning_rate(
            train.schedule,
            update,
            peak=train.learning_rate,
            d_model=task.model.d_model,
            total_steps=steps,
        )
        twins.train(task.train_batch(update), rate)
        found = twins.differences()
        worst = {name: max(value, worst.get(name, 0.0)) for name, value in found.items()}
        report(update, found)
    return worst
