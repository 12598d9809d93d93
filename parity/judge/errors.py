"""Norm-wise errors, and the refusal to call an empty check a success."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

FLOAT64_TOLERANCE = 1e-12


class VacuousError(AssertionError):
    """A comparison that could not have failed: one side is constant or zero."""


@dataclass(frozen=True)
class Difference:
    """How far one named value is off: ||a - b|| / max(||b||, floor)."""

    name: str
    error: float
    floored: bool


def difference(
    name: str, ours: np.ndarray, theirs: np.ndarray, floor: float = 0.0, vanishes: bool = False
) -> Difference:
    """The norm-wise relative error of `ours` against `theirs`.

    Args:
        floor: the scale that the value's computation sets, where its own norm may be far below it:
            without one, rounding noise would be divided by rounding noise.
        vanishes: the value is zero in exact arithmetic, and only the floor says what small means.
    Raises:
        VacuousError: `theirs` is constant, zero, or so far below the floor that the tolerance is
            above a tenth of it.
        FloatingPointError: a side holds NaN or infinities.
        ValueError: the shapes differ.
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise ValueError(f"{name}: shapes {ours.shape} and {theirs.shape} differ")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise FloatingPointError(f"{name}: a side is not finite")
    norm = float(np.linalg.norm(theirs))
    if not vanishes:
        _refuse_vacuous(name, theirs, norm, floor)
    scale = max(norm, floor)
    return Difference(name, float(np.linalg.norm(ours - theirs)) / scale, norm < floor)


def _refuse_vacuous(name: str, theirs: np.ndarray, norm: float, floor: float) -> None:
    if norm == 0 or (theirs.size > 1 and np.ptp(theirs) == 0):
        raise VacuousError(f"{name}: all values are {theirs.flat[0]}, nothing is compared")
    if norm < 10 * FLOAT64_TOLERANCE * floor:
        raise VacuousError(f"{name}: norm {norm:.1e} is noise beside its scale of {floor:.1e}")


def relative_error(ours: np.ndarray, theirs: np.ndarray, floor: float = 0.0) -> float:
    """||a - b|| / max(||b||, floor); infinite for other shapes and for what is not finite."""
    if ours.shape != theirs.shape:
        return np.inf
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    distance = float(np.linalg.norm(a - b))
    return distance and distance / max(float(np.linalg.norm(b)), floor, np.finfo(float).tiny)


def differences(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> list[Difference]:
    """The difference of every named value; the names must be the same on both sides."""
    if set(ours) != set(theirs):
        raise ValueError(f"only on one side: {sorted(set(ours) ^ set(theirs))}")
    floors = gradient_floors({name: float(np.linalg.norm(v)) for name, v in theirs.items()})
    return [
        difference(name, ours[name], theirs[name], floors[name], name.endswith(_KEY_BIASES))
        for name in theirs
    ]


# What adds the same to all scores of a query, at least where keys are not rotated.
_KEY_BIASES = ("k_proj.bias", "k_norm.bias")
# What a gradient reaches through the scores alone.
_QUERY_SIDE = (
    *("q_proj", "k_proj", "q_norm", "k_norm"),
    *("q", "k", "q_rotated", "k_rotated", "scores"),
)


def gradient_floors(norms: Mapping[str, float]) -> dict[str, float]:
    """The scale below which each gradient is rounding noise; 0 where its own norm is the scale.

    The gradient of a score is w (g - sum(w g)) for softmax weights w and their gradients g: a
    difference that cancels, wholly where one key has all the weight. What rounding leaves of it is
    small beside g, not beside the difference, and g's scale shows in the other gradients of the
    layer. So a gradient that flows through the scores alone is measured against the largest of its
    attention layer: that of q_proj and k_proj, and of their norms; of the query's side of
    cross-attention, under pre-norm its norm included; of T5's bias, which has all attention layers
    of its stack. A key bias adds the same to all scores of a query: its gradient is zero in exact
    arithmetic.
    """
    layers = {name: _attention_layers(name, norms) for name in norms}
    scales = {
        layer: max((n for name, n in norms.items() if _within(name, layer)), default=0.0)
        for layer in {layer for found in layers.values() for layer in found}
    }
    return {name: max((scales[x] for x in found), default=0.0) for name, found in layers.items()}


def _attention_layers(name: str, norms: Mapping[str, float]) -> set[str]:
    """The attention layers through whose scores alone the gradient of `name` flows."""
    layer = attention_layer(name)
    if layer is not None:
        return {layer}
    module = _bare(name).rpartition(".")[0]
    owner, _, leaf = module.rpartition(".")
    if leaf == "rel_bias":
        parts = [_bare(n).split(".") for n in norms if _within(n, owner)]
        return {".".join(p[: p.index("attn") + 1]) for p in parts if "attn" in p}
    stack = owner.rpartition(".layers.")[0]
    # The residual stream is left unnormalized: cross_norm feeds cross-attention and nothing else.
    pre_norm = f"{stack}.final_norm.weight" in norms
    return {f"{owner}.cross_attn"} if leaf == "cross_norm" and pre_norm else set()


def attention_layer(name: str) -> str | None:
    """The attention layer through whose scores alone the gradient of `name` flows, if it does."""
    if name.startswith("input of ") and name.endswith(".cross_attn [0]"):
        return name.removeprefix("input of ").removesuffix(" [0]")
    parts = name.split("@")[0].split(" [")[0].split(".")
    at = next((i for i, part in enumerate(parts) if part.split(" ")[-1] in _QUERY_SIDE), None)
    if at is None:
        return None
    return _bare(".".join(parts[:at]))


def _within(name: str, layer: str) -> bool:
    return _bare(name).startswith(f"{layer}." if layer else "")


def _bare(name: str) -> str:
    return name.removeprefix("input of ").removeprefix("output of ")
