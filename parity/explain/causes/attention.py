"""What attention does between its projections: grouping, scale, masking, softmax, merging."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from parity.explain.causes.constants import describe_constant
from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains
from parity.explain.causes.relations import rounded


def different_scores(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Scores from q, k and a bias: how heads are paired, which axes are contracted, the factors."""
    if not value.point.name.endswith(".scores") or not {"q", "k"} <= set(value.read):
        return
    ours, theirs = (_scores_form(value.read, s) for s in (value.reference, value.candidate))
    if not ours or not theirs:
        return
    residual = theirs.residual
    if ours.pairing != theirs.pairing:
        text = f"{theirs.pairing}, where the reference has {ours.pairing}"
        yield Cause(text, f"use {ours.pairing}", residual)
    if abs(theirs.scale / ours.scale - 1) > 1e-9:
        wrong, right = (describe_constant(form.scale, evidence.sizes) for form in (theirs, ours))
        text = f"score scale {wrong}, where the reference has {right}"
        yield Cause(text, f"scale the scores by {right}", residual)
    if abs(theirs.gain - ours.gain) > 1e-9:
        wrong, right = (_times_bias(form.gain, evidence.sizes) for form in (theirs, ours))
        text = f"the scores hold {wrong}, where the reference's hold {right}"
        yield Cause(text, f"add {right}", residual)


@dataclass(frozen=True)
class ScoresForm:
    """Scores are scale * (q paired with k in this way) + gain * bias."""

    pairing: str
    scale: float
    gain: float
    residual: float


def _times_bias(gain: float, sizes: Mapping[str, float]) -> str:
    if abs(gain) < 1e-9:
        return "no bias"
    factor = describe_constant(gain, sizes)
    return "the bias" if factor == "1" else f"the bias times {factor}"


def _scores_form(read: Mapping[str, np.ndarray], scores: np.ndarray) -> ScoresForm | None:
    bias = read.get("bias", np.zeros(1))
    if bias.size > 1:
        bias = np.broadcast_to(bias, (len(scores), *bias.shape[1:]))
    for text, raw in _raw_scores(read):
        if raw.size != scores.size or not raw.any():
            continue
        parts = [raw, *([bias] if bias.size == raw.size else [])]
        columns = np.stack([part.ravel() for part in parts], 1)
        factors = np.linalg.lstsq(columns, scores.ravel(), rcond=None)[0]
        predicted = (columns @ factors).reshape(scores.shape)
        if explains(predicted, scores):
            gain = float(factors[1]) if len(factors) > 1 else 0.0
            return ScoresForm(text, float(factors[0]), gain, deviation(predicted, scores))
    return None


def _raw_scores(read: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The products of what meets in the scores: the rotated where there is a rotation."""
    rotated = {"q_rotated", "k_rotated"} <= set(read)
    q, k = (read[f"{name}_rotated" if rotated else name] for name in "qk")
    yield from _pairings(q, k)
    if rotated:
        text = "q and k meet as they were before their rotation"
        yield text, next(_pairings(read["q"], read["k"]))[1]


def _pairings(q: np.ndarray, k: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    groups = q.shape[2] // k.shape[2]
    repeated, tiled = np.repeat(k, groups, 2), np.tile(k, (1, 1, groups, 1))
    yield "key heads repeated (0 0 1 1)", np.einsum("BTNH,BSNH->BNTS", q, repeated)
    yield "key heads tiled (0 1 0 1)", np.einsum("BTNH,BSNH->BNTS", q, tiled)
    if q.shape == k.shape:
        yield "q and k swapped", np.einsum("BTNH,BSNH->BNTS", k, q)
        yield "attention across the batch", np.einsum("BTNH,STNH->TNBS", q, k)


def different_weights(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Weights from scores and the mask: how masked keys and rows without keys are treated."""
    if not value.point.name.endswith(".weights") or "scores" not in value.read:
        return
    scores = value.read["scores"].astype(np.float64)
    masks = [m for n, m in value.read.items() if m.dtype == bool and m.ndim == 4]
    mask = group_mask(masks[0], scores) if masks else None
    for text, fix, predicted in _weights_forms(scores, mask):
        if explains(predicted, value.candidate):
            yield Cause(text, fix, deviation(predicted, value.candidate))
            return
    for dtype in ("float32", "bfloat16", "float16"):
        if _softmax_in(dtype, scores, mask, value.candidate):
            text = f"softmax computed in {dtype}"
            yield Cause(text, "take the softmax in float32 or wider, and in float64 in float64")
            return


def group_mask(mask: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """A mask [B, 1 or N, T, S] in the shape of scores [B, K, G, T, S] or [B, N, T, S]."""
    if scores.ndim == 4:
        return np.broadcast_to(mask, scores.shape)
    split = (1, 1) if mask.shape[1] == 1 else scores.shape[1:3]
    return np.broadcast_to(mask.reshape(mask.shape[0], *split, *mask.shape[2:]), scores.shape)


def _softmax(scores: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return torch.tensor(scores).softmax(-1).numpy()


def _weights_forms(scores, mask) -> Iterator[tuple[str, str, np.ndarray]]:
    if mask is None:
        return
    zeroed = "give a row that may attend to nothing zero weights"
    lowest = np.finfo(np.float32).min
    yield "the mask is ignored", "apply the mask", _softmax(scores)
    yield "the mask is inverted", "True means may attend", _softmax(np.where(mask, -np.inf, scores))
    yield (
        "the 0/1 mask is added to the scores as a number",
        "turn False into the lowest number first",
        _softmax(scores + mask),
    )
    yield (
        "a row that may attend to nothing is NaN: masked scores are -inf",
        zeroed,
        _softmax(np.where(mask, scores, -np.inf)),
    )
    yield (
        "a row that may attend to nothing is uniform",
        zeroed,
        _softmax(np.where(mask, scores, lowest)),
    )
    for constant in (-1e4, -1e9, -1e30):
        text = f"a masked score is {constant:g}, added: it leaks, and rows of it are plain softmax"
        yield text, zeroed, _softmax(np.where(mask, scores, scores + constant))
    yield from _other_rows(scores, mask)


def _other_rows(scores, mask) -> Iterator[tuple[str, str, np.ndarray]]:
    """Heads folded into the batch, and a mask repeated in the other order."""
    batch, length, keys = scores.shape[0], *scores.shape[-2:]
    heads = scores[0, ..., 0, 0].size
    flat = mask.reshape(batch, heads, length, keys)
    order = np.arange(batch * heads)
    for wrong in (order % batch, order // heads):
        rows = flat[:, 0][wrong].reshape(heads, batch, length, keys).swapaxes(0, 1)
        used = rows.reshape(scores.shape)
        weights = np.where(used, _softmax(np.where(used, scores, np.finfo(float).min)), 0.0)
        yield (
            "a head reads the mask of another row of the batch",
            "repeat the mask in the order in which heads are folded into the batch",
            weights,
        )


def _softmax_in(dtype: str, scores, mask, candidate: np.ndarray) -> bool:
    low = getattr(torch, dtype)
    narrow = torch.tensor(scores).to(low)
    if mask is not None:
        narrow = torch.where(torch.tensor(mask), narrow, torch.finfo(low).min)
    weights = narrow.softmax(-1).double().numpy()
    weights = weights if mask is None else np.where(mask, weights, 0.0)
    if np.array_equal(weights, candidate):
        return True
    return dtype == "float32" and np.array_equal(rounded(candidate, dtype), candidate)


def different_context(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    """Context from weights and v: how heads are paired."""
    read = value.read
    if not value.point.name.endswith(".context") or not {"weights", "v"} <= set(read):
        return
    weights, v = read["weights"], read["v"]
    heads = weights[0, ..., 0, 0].size
    flat = weights.reshape(weights.shape[0], heads, *weights.shape[-2:])
    groups = heads // v.shape[2]
    tiled = np.einsum("BNTS,BSNH->BTNH", flat, np.tile(v, (1, 1, groups, 1)))
    if explains(tiled.reshape(value.candidate.shape), value.candidate):
        residual = deviation(tiled.reshape(value.candidate.shape), value.candidate)
        yield Cause(
            "value heads tiled (0 1 0 1), where the reference has them repeated (0 0 1 1)",
            "repeat each key/value head for its group",
            residual,
        )
