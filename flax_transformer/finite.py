"""Find the first value that is not finite in one update of a state."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from flax_transformer.gradients import gradients, part_loss
from flax_transformer.losses import count_tokens
from flax_transformer.models import Model
from flax_transformer.state import TrainState
from transformer_spec import naming, taps
from transformer_spec.batch import Batch
from transformer_spec.parameters import parameter_shapes
from transformer_spec.train_config import TrainConfig
from transformer_spec.watching import Watch


def first_bad(
    state: TrainState, batch: Batch, *, model: Model, config: TrainConfig
) -> tuple[str | None, str | None]:
    """The first value and the first gradient of the state's next update that are not finite.

    Values are what taps name and modules return, in order of execution, and the loss after them;
    gradients are in the order of parameters. Dropout is that of the update. The state is unchanged.
    """
    watch, batch = Watch(all_finite), jax.tree.map(jnp.asarray, batch)
    total = count_tokens(batch.label_mask)
    first = config.accumulation * state.step
    for number, part in enumerate(batch.parts(config.accumulation)):
        key = jax.random.fold_in(state.dropout_key, first + number)
        with nn.intercept_methods(partial(_watched, watch)), taps.recording(watch.tap):
            loss, _ = part_loss(state.params, part, total, key, model=model, config=config)
        if watch.first is None and not all_finite(loss):
            watch.first = "the loss"
    compiled = jax.jit(partial(gradients, model=model, config=config))
    grads, _ = compiled(state.params, batch, state.dropout_key, state.step)
    named, order = naming.to_named(grads), parameter_shapes(model.config)
    return watch.first, next((name for name in order if not all_finite(named[name])), None)


def all_finite(value: Any) -> bool:
    """Whether all arrays in a module's output are finite; ids and masks are."""
    floats = (x for x in jax.tree.leaves(value) if jnp.issubdtype(x.dtype, jnp.floating))
    return all(bool(jnp.isfinite(x).all()) for x in floats)


def _watched(watch: Watch, call: Any, args: tuple, kwargs: dict, context: Any) -> Any:
    if context.method_name != "__call__":
        return call(*args, **kwargs)
    watch.enter(naming.module_name(context.module.path))
    output = call(*args, **kwargs)
    watch.leave(output)
    return output
