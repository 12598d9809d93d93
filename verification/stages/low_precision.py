"""What a half-precision run must still do: statistics and softmax wider, dtypes alike, no NaN.

A value that is computed in float32 and rounded once to a narrow type is the same number on both
sides, but where float32's own rounding crosses a boundary of the narrow type: with an error of a
few units of 2**-24 against a spacing of 2**-8 (bfloat16) or 2**-11 (float16) that is less than one
value in a thousand. Computed in the narrow type itself, or rounded twice, a tenth or more of the
values differ. So the share of unequal values is the test, with ALLOWED between the two.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from parity.explain.causes.attention import group_mask
from parity.explain.causes.evidence import Cause, Evidence, gather_evidence
from parity.explain.causes.norms import identify_norm
from parity.observe.points import Observed, Point, Recording
from verification.stages.finding import Finding

ALLOWED = 0.02
Replay = tuple[str, str, np.ndarray]


def compare_low_precision(
    reference: Recording, candidate: Recording, params: Mapping[str, np.ndarray], dtype: str
) -> list[Finding]:
    """Where two local runs in a narrow dtype differ in what must be computed wider."""
    found: dict[str, Finding] = {}
    for key, passed in reference.observed.items():
        other = candidate.observed.get(key)
        if other is None:
            continue

        def evidence(point: Point = passed.point) -> Evidence:
            return gather_evidence(point.module, reference, candidate, params, {})

        for finding in _at_point(passed, other, evidence, dtype):
            found.setdefault(finding.at, finding)
    return list(found.values())


def compare_dtypes(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[Finding]:
    """Parameters kept in another dtype."""
    odd = [name for name in ours if theirs.get(name, ours[name]) != ours[name]]
    if not odd:
        return []
    text = f"dtype {theirs[odd[0]]}, where the reference has {ours[odd[0]]}"
    fix = f"cast the parameters to {ours[odd[0]]}"
    detail = f"{len(odd)} of {len(ours)} parameters"
    return [Finding(f"parameters.{odd[0]}", detail, None, [Cause(text, fix)])]


def _at_point(
    ours: Observed, theirs: Observed, evidence: Callable[[], Evidence], dtype: str
) -> Iterator[Finding]:
    point = ours.point
    for a, b in zip(ours.arrays, theirs.arrays, strict=False):
        if a.shape != b.shape or a.dtype.kind != "f":
            continue
        if np.isfinite(a).all() and not np.isfinite(b).all():
            text = f"NaN in {dtype}: the masked scores are minus infinity"
            fix = "mask with the dtype's own lowest number, in float32 or wider"
            yield Finding(point.module, str(point), np.inf, [Cause(text, fix)])
            continue
        share = float((a != b).mean())
        if _widened(point) and share > ALLOWED:
            causes = list(_causes(point, evidence(), b, dtype))
            yield Finding(point.module, f"{point}: {share:.0%} of the values", share, causes)


def _widened(point: Point) -> bool:
    """Whether the value there is computed wider and rounded once."""
    leaf = point.name.rpartition(".")[2]
    return leaf == "weights" or (point.kind == "output" and leaf.endswith("norm"))


def _causes(point: Point, evidence: Evidence, value: np.ndarray, dtype: str) -> Iterator[Cause]:
    low = getattr(torch, dtype)
    replays = _weights(point, evidence, low) if point.kind == "tap" else _norms(evidence, low)
    for text, fix, predicted in replays:
        share = float((predicted != value).mean())
        if predicted.shape == value.shape and share <= ALLOWED:
            yield Cause(f"{text} in {dtype}", fix, share)
            return


def _weights(point: Point, evidence: Evidence, low: torch.dtype) -> Iterator[Replay]:
    value = next(c for c in evidence.computed if c.point == point)
    scores = torch.tensor(value.read["scores"]).to(low)
    given = next((m for m in evidence.inputs if m.dtype == bool and m.ndim == 4), None)
    mask = None if given is None else torch.tensor(group_mask(given, value.read["scores"]))
    if mask is not None:
        scores = torch.where(mask, scores, torch.finfo(low).min)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    weights = weights if mask is None else torch.where(mask, weights, 0.0)
    yield "softmax computed", "widen the scores to float32 before the softmax", _array(weights)


def _norms(evidence: Evidence, low: torch.dtype) -> Iterator[Replay]:
    """Rounded before the weight, or all of it in the narrow type; the form solved beforehand."""
    if not evidence.inputs or "weight" not in evidence.params:
        return
    x = torch.tensor(evidence.inputs[0])
    weight = torch.tensor(evidence.params["weight"])
    bias = torch.tensor(evidence.params.get("bias", np.zeros(1, np.float32)))
    y = evidence.computed[-1].reference
    for centered in (True, False):
        kept = x - x.mean(-1, keepdim=True) if centered else x
        eps = _epsilon(x.double().numpy(), y, evidence, centered)
        scaled = kept * torch.rsqrt(kept.square().mean(-1, keepdim=True) + eps)
        early = scaled.to(low) * weight.to(low)
        early = early + bias.to(low) if "bias" in evidence.params else early
        yield "rounded before the weight is applied", "multiply first, round once", _array(early)
        narrow = kept.to(low)
        mean = narrow.square().mean(-1, keepdim=True)
        slow = narrow * torch.rsqrt(mean + eps) * weight.to(low) + bias.to(low)
        yield "statistics taken", "take the statistics in float32", _array(slow)


def _epsilon(x: np.ndarray, y: np.ndarray, evidence: Evidence, centered: bool) -> float:
    """The reference's epsilon as far as its rounded values tell; 0 where they do not."""
    weight, bias = evidence.params["weight"], evidence.params.get("bias", 0.0)
    forms = [
        f for f in identify_norm(x, y.astype(np.float64), weight, bias) if f.centered == centered
    ]
    return forms[0].eps if forms else 0.0


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.float().numpy()
