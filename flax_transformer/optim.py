"""The update rule: clip, Adam, decoupled decay. The learning rate is handed in at each step."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from transformer_spec.naming import dotted
from transformer_spec.parameters import is_decayed
from transformer_spec.train_config import TrainConfig


def decay_mask(params: Any, decay_all: bool) -> Any:
    """True for each parameter that weight decay applies to.

    optax decays everything unless it is given such a mask; so does torch's AdamW.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, _: decay_all or is_decayed(dotted(tuple(k.key for k in path))), params
    )


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """The step before its learning rate: `optax.adamw` without `scale_by_learning_rate`.

    g <- g * min(1, c / ||g||)                        c: clip_norm, the norm over all parameters
    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    u  = (m / (1 - b1^n)) / (sqrt(v / (1 - b2^n)) + eps) + decay * p

    and p <- p - lr u. With decay 0 it is Adam.

    Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2; Pascanu et al.
    2013 (clipping).
    Differences: weight_decay defaults to 1e-4 in optax.adamw and to 1e-2 in torch.optim.AdamW;
    `torch.nn.utils.clip_grad_norm_` divides by ||g|| + 1e-6.
    """
    limit = config.clip_norm
    clip = [] if limit is None else [optax.clip_by_global_norm(max_norm=limit)]
    # Every argument is given: no release of optax decides one.
    return optax.chain(
        *clip,
        optax.scale_by_adam(
            b1=config.beta1,
            b2=config.beta2,
            eps=config.eps,
            eps_root=0.0,
            mu_dtype=None,
            nesterov=False,
        ),
        optax.add_decayed_weights(
            weight_decay=config.weight_decay, mask=partial(decay_mask, decay_all=config.decay_all)
        ),
    )


def global_norm(tree: dict) -> Float[Array, ""]:
    """The Euclidean norm of all gradients concatenated."""
    return jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(tree)))


def apply_updates(params: Any, updates: Any, learning_rate: Float[Array, ""] | float) -> Any:
    """p - lr u"""
    return jax.tree.map(lambda p, u: p - (learning_rate * u).astype(p.dtype), params, updates)
