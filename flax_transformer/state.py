"""What an update reads and writes, converted to named arrays and back."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from transformer_spec import naming
from transformer_spec.state import STREAMS, Named, NamedState


class TrainState(flax.struct.PyTreeNode):
    """All that an update reads and writes."""

    step: Array
    params: dict
    opt_state: Any
    dropout_key: Array


def to_named(state: TrainState) -> NamedState:
    """A copy of the state on the host: the next update gives its buffers away.

    Differences: optax keeps one count and trees of moments, torch a count and moments with each
    parameter, from its first update on.
    """
    adam = _adam(state.opt_state)
    return NamedState(
        int(state.step),
        np.array(jax.random.key_data(state.dropout_key)),
        *(_named(tree) for tree in (state.params, adam.mu, adam.nu)),
    )


def from_named(named: NamedState, state: TrainState) -> TrainState:
    """The saved state, in the structure and dtypes of `state`.

    Raises:
        ValueError: a name, shape or dtype differs from that in `state`, or a value is not finite.
    """
    named.check(naming.named_shapes(state.params), jax.tree.leaves(state.params)[0].dtype.name)
    params, mu, nu = (
        jax.tree.map(jnp.array, naming.from_named(group, state.params))
        for group in named.groups().values()
    )
    step = jnp.array(named.step, state.step.dtype)
    adam = optax.ScaleByAdamState(jnp.array(step), mu, nu)
    return TrainState(
        step=step,
        params=params,
        opt_state=tuple(adam if _is_adam(part) else part for part in state.opt_state),
        dropout_key=jax.random.wrap_key_data(jnp.array(named.dropout_key), impl=STREAMS),
    )


def _named(tree: Any) -> Named:
    return naming.to_named(jax.tree.map(np.array, tree))


def _adam(opt_state: Any) -> optax.ScaleByAdamState:
    return next(part for part in opt_state if _is_adam(part))


def _is_adam(part: Any) -> bool:
    return isinstance(part, optax.ScaleByAdamState)
