"""Weights under which a mistake shows, and the usual ones under which it does not.

Hostile weights are of unit scale: at the usual std of 0.02 every softmax is uniform and faults in
the scores vanish. Norm scales and biases are random: at 1 and 0 a missing or doubled norm, or a
bias that was never copied, cannot be seen.
"""

import numpy as np

from transformer_spec.config import GatedFeedForward, ModelConfig
from transformer_spec.parameters import is_bias, is_embedding, is_norm

Shapes = dict[str, tuple[int, ...]]
Named = dict[str, np.ndarray]
# In units of an embedding's spread, and of a row's.
SHARED, ALONG = 3.0, 3.0


def hostile_parameters(shapes: Shapes, seed: int, embedding_scale: float = 1.0) -> Named:
    """Parameters by name. Token embeddings are of unit scale after the model has scaled them.

    Larger ones saturate a post-norm model's first softmax: the gradients of q and k, differences
    w (g - sum(w g)) at weights w of 0 and 1, are then rounding noise, not a comparison.
    """
    rng = np.random.default_rng([seed, 11])
    named = {name: _draw(rng, name, shape) for name, shape in shapes.items()}
    tables = [name for name in named if f".{name}".endswith(".embed.weight")]
    return named | {name: named[name] / embedding_scale for name in tables}


def unit_scores(config: ModelConfig, named: Named) -> Named:
    """The parameters, with queries whose products with keys are of unit scale after `score_scale`.

    T5 does not scale its scores, and neither do its own initial weights need it to. With queries of
    unit scale a score is of scale sqrt(H), 8 in a published model: every softmax saturates, and
    through 8 layers half a unit in the last place of the weights becomes 8e-12 of a gradient.
    """
    factor = config.head_size**-0.5 / config.score_scale
    return named | {n: w * factor for n, w in named.items() if ".q_proj." in n}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    qualified = name if "." in name else f"norm.{name}"  # a norm by itself has bare leaves
    if is_bias(qualified):
        return rng.normal(0.0, 0.5, shape)
    if is_norm(qualified):
        return rng.normal(1.0, 0.5, shape)
    return rng.normal(size=shape) * (1.0 if is_embedding(qualified) else shape[-1] ** -0.5)


def usual_parameters(shapes: Shapes, seed: int, norm_start: float = 1.0) -> Named:
    """As a model is initialized: matrices of std 0.02, norms that only normalize, biases 0."""
    rng = np.random.default_rng([seed, 13])

    def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if is_bias(name):
            return np.zeros(shape)
        return np.full(shape, norm_start) if is_norm(name) else rng.normal(0.0, 0.02, shape)

    return {name: draw(name, shape) for name, shape in shapes.items()}


def off_the_kink(config: ModelConfig, named: Named) -> Named:
    """Weights that keep ReLU's inputs, of about unit spread, six standard deviations off 0.

    At 0 its slope jumps: in low precision a unit may take the other one, whoever computes it. The
    biases move them; a model without any has a direction that all embeddings share instead, and
    every unit looks along it or against it.
    """
    if config.ffn.activation != "relu":
        return named
    layer = "gate_proj" if isinstance(config.ffn, GatedFeedForward) else "up_proj"
    if config.ffn_bias:
        moved = [name for name in named if name.endswith(f"{layer}.bias")]
        return named | {name: named[name] + np.copysign(6, named[name]) for name in moved}
    # Alternating: a norm that takes the mean away leaves nothing of a constant one.
    shared = np.where(np.arange(config.d_model) % 2, -1.0, 1.0)
    tables = [name for name in named if f".{name}".endswith(".embed.weight")]
    units = [name for name in named if name.endswith(f"{layer}.weight")]
    return (
        named
        | {name: named[name] + SHARED * shared / config.embedding_scale for name in tables}
        | {name: named[name] + _along(named[name], shared) for name in units}
    )


def _along(weight: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """What turns every unit, a row, toward the shared direction or away from it."""
    return np.copysign(ALONG * len(shared) ** -0.5, weight[:, :1]) * shared
