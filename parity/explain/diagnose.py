"""Why a module differs: each difference replayed from what its code read, causes solved for.

For every value that the faulty module's code computed, the concepts in `parity.explain.causes` say
which form the reference's value has and which the candidate's, with constants (an epsilon, a scale,
a window, an offset) solved from the numbers. A cause is reported only if it reproduces the
candidate's value down to rounding. Faults in several values of a module are explained one by one.
"""

from collections.abc import Mapping

import numpy as np

from parity.explain.causes import (
    attention,
    distances,
    feed_forward,
    gradients,
    heads,
    linear,
    masks,
    norms,
    plain_attention,
    positions,
    relations,
    rotary,
    rotation,
)
from parity.explain.causes.evidence import Cause, Computed, Evidence, Explain, gather_evidence
from parity.explain.localize import Fault
from parity.judge.errors import relative_error
from parity.observe.points import Observed, Recording

# What knows the concept comes first; relations between any two arrays are the last resort.
CONCEPTS: tuple[Explain, ...] = (
    norms.different_norm,
    linear.different_linear,
    linear.different_embedding,
    heads.different_head,
    rotation.different_rotation,
    attention.different_scores,
    attention.different_weights,
    attention.different_context,
    feed_forward.different_activation,
    positions.different_sinusoids,
    rotary.different_rotation_table,
    distances.different_buckets,
    plain_attention.different_attention,
)
INTEGERS: tuple[Explain, ...] = (positions.different_ids, masks.different_mask)


def diagnose(
    fault: Fault,
    reference: Recording,
    candidate: Recording,
    params: Mapping[str, np.ndarray],
    sizes: Mapping[str, float],
    tolerance: float,
) -> list[Cause]:
    """The causes of one fault, from the local runs of both sides; none where nothing explains it.

    Args:
        reference, candidate: the local runs.
        params: the parameters, the same on both sides, by name.
        sizes: numbers that a constant may be made of, by name.
    """
    evidence = gather_evidence(fault.module, reference, candidate, params, sizes)
    if fault.stage == "backward":
        return _unique(list(gradients.different_gradients(evidence)))
    found = _different_calls(fault, reference, candidate)
    for value in evidence.computed:
        if relative_error(value.candidate, value.reference) > tolerance:
            found += _explain(evidence, value)
    return _unique(found)


def _explain(evidence: Evidence, value: Computed) -> list[Cause]:
    if value.reference.shape != value.candidate.shape and value.reference.dtype.kind == "f":
        return []
    if value.reference.dtype.kind != "f":
        return [cause for explain in INTEGERS for cause in explain(evidence, value)]
    if not np.isfinite(value.candidate).all():
        known = list(attention.different_weights(evidence, value))
        return known or list(relations.not_finite(evidence, value))
    for explain in (*CONCEPTS, *relations.RELATIONS):
        causes = list(explain(evidence, value))
        if causes:
            return causes
    return []


def _different_calls(fault: Fault, reference: Recording, candidate: Recording) -> list[Cause]:
    """Children called by one side alone, and arrays that are not observed."""
    ours, theirs = (_children_called(run, fault.module) for run in (reference, candidate))
    never, extra = sorted(ours - theirs), sorted(theirs - ours)
    causes = []
    if never and not candidate.failure:
        text = f"{', '.join(never)} is never called"
        text += f"; {', '.join(extra)} is called instead" if extra else ""
        causes.append(Cause(text, f"call {', '.join(never)}"))
    for key, observed in reference.observed.items():
        other = candidate.observed.get(key)
        own = observed.point.kind == "input" and observed.point.module == fault.module
        if not own or other is None:
            continue
        causes += _extra_arguments(observed, other, reference)
        if len(other.arrays) < len(observed.arrays):
            kinds = [a.dtype for a in observed.arrays]
            what = "the mask is" if bool in kinds else "an argument is"
            text = f"{what} not passed to {observed.point.name}"
            causes.append(Cause(text, "pass it"))
            break
    return causes


def _extra_arguments(ours: Observed, theirs: Observed, reference: Recording) -> list[Cause]:
    """Arguments of a call that the reference does not pass, and what else gets the same."""
    causes = []
    if len(theirs.arrays) <= len(ours.arrays):
        return causes
    for name, array in zip(theirs.point.arguments, theirs.arrays, strict=True):
        if name in ours.point.arguments:
            continue
        others = [
            p.point.name for p in reference.observed.values()
            if p.point.kind == "input" and p.point.module == ours.point.module
            and any(np.array_equal(array, other) for other in p.arrays)
        ]  # fmt: skip
        like = f", the same as to {others[0]}" if others else ""
        text = f"{name} is passed to {ours.point.name}{like}; the reference passes none"
        causes.append(Cause(text, f"do not pass {name}", 0.0 if others else None))
    return causes


def _children_called(run: Recording, module: str) -> set[str]:
    points = [observed.point for observed in run.observed.values()]
    return {p.name for p in points if p.kind == "input" and p.module == module and p.name != module}


def _unique(causes: list[Cause]) -> list[Cause]:
    return list({cause.text: cause for cause in causes}.values())
