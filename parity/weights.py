"""Weights under which a mistake shows, and the usual ones under which it does not.

Hostile weights are of unit scale: at the usual std of 0.02 every softmax is uniform and faults in
the scores vanish. Norm scales and biases are random: at 1 and 0 a missing or doubled norm, or a
bias that was never copied, cannot be seen.
"""

import numpy as np

from transformer_spec.config import GatedFeedForward, ModelConfig
from transformer_spec.parameters import is_bias, is_embedding, is_norm

Shapes = dict[str, tuple[int, ...]]


def hostile_parameters(
    shapes: Shapes, seed: int, embedding_scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Parameters by name. Token embeddings are of unit scale after the model has scaled them.

    Larger ones saturate a post-norm model's first softmax: the gradients of q and k, differences
    w (g - sum(w g)) at weights w of 0 and 1, are then rounding noise, not a comparison.
    """
    rng = np.random.default_rng([seed, 11])
    named = {name: _draw(rng, name, shape) for name, shape in shapes.items()}
    tables = [name for name in named if f".{name}".endswith(".embed.weight")]
    return named | {name: named[name] / embedding_scale for name in tables}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    qualified = name if "." in name else f"norm.{name}"  # a norm by itself has bare leaves
    if is_bias(qualified):
        return rng.normal(0.0, 0.5, shape)
    if is_norm(qualified):
        return rng.normal(1.0, 0.5, shape)
    return rng.normal(size=shape) * (1.0 if is_embedding(qualified) else shape[1] ** -0.5)


def usual_parameters(shapes: Shapes, seed: int) -> dict[str, np.ndarray]:
    """As a model is initialized: matrices of std 0.02, norms 1, biases 0."""
    rng = np.random.default_rng([seed, 13])

    def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if is_bias(name):
            return np.zeros(shape)
        return np.ones(shape) if is_norm(name) else rng.normal(0.0, 0.02, shape)

    return {name: draw(name, shape) for name, shape in shapes.items()}


def off_the_kink(config: ModelConfig, named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Biases that keep ReLU's inputs, of about unit spread, six standard deviations off 0.

    At 0 its slope jumps: in low precision a unit may take the other one, whoever computes it.
    """
    gated = isinstance(config.ffn, GatedFeedForward)
    leaf = "gate_proj.bias" if gated else "up_proj.bias"
    moved = [n for n in named if config.ffn.activation == "relu" and n.endswith(leaf)]
    return named | {name: named[name] + np.copysign(6, named[name]) for name in moved}
