"""The two sides' optimizers held against each other on the same gradients, array by array."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from parity.explain.causes.evidence import Cause
from parity.training import probes, schedules
from parity.training.family import Constants, Form, Track
from parity.training.fit import Fit, evaluate, fit
from parity.training.optimizers import Explanation, causes, explain, identify
from parity.training.pairing import Pairing
from parity.training.probes import Probe
from parity.training.record import Loop, Update
from parity.training.result import Finding, shortened

_CLIPS = ("norm", "norm, 1e-6 added", "array", "value")


def compare_updates(
    reference: Loop, candidate: Loop, pairing: Pairing, updates: int
) -> tuple[list[Finding], float]:
    """Where the optimizers' updates differ, and why; and the largest error.

    Args:
        pairing: between the two sides; torch's names and layouts are used for both.
        updates: how many are compared, from which learning rates are read too.
    """
    shapes = {n: a.shape for n, a in _as_torch(reference, pairing).items()}
    probe = probes.make_probe(shapes, max(updates, probes.SMALL + probes.MIXED))
    right = _run(reference, probe, pairing)
    wrong = _run(candidate, probe, pairing)
    floors = probes.measure_floors(_in_torch(reference, pairing), probe, right)
    errors = probes.differing(right, wrong, floors)
    if not errors:
        return [], _largest_error(right, wrong)
    found = _explained(reference, candidate, probe, right, wrong, errors)
    return found, max(errors.values())


def _as_torch(loop: Loop, pairing: Pairing) -> Mapping[str, np.ndarray]:
    return loop.parameters if loop.framework == "torch" else pairing.to_torch(loop.parameters)


def _in_torch(loop: Loop, pairing: Pairing) -> Loop:
    """The same loop under torch's names and layouts."""
    if loop.framework == "torch":
        return loop
    inner = loop.update
    assert inner is not None

    def update(weights: Mapping, gradients: Sequence[Mapping]) -> list[Update]:
        found = inner(pairing.to_jax(weights), [pairing.to_jax(g) for g in gradients])
        return [
            replace(u, before=pairing.to_torch(u.before), after=pairing.to_torch(u.after))
            for u in found
        ]

    return replace(loop, update=update, parameters=pairing.to_torch(loop.parameters))


def _run(loop: Loop, probe: Probe, pairing: Pairing) -> list[Update]:
    update = _in_torch(loop, pairing).update
    assert update is not None
    return update(probe.parameters, probe.gradients)


def _largest_error(right: Sequence[Update], wrong: Sequence[Update]) -> float:
    return max(
        float(np.linalg.norm((b.after[n] - b.before[n]) - (a.after[n] - a.before[n])))
        / max(float(np.linalg.norm(a.after[n] - a.before[n])), 1e-300)
        for a, b in zip(right, wrong, strict=True)
        for n in a.before
    )


def _explained(
    reference: Loop,
    candidate: Loop,
    probe: Probe,
    right: Sequence[Update],
    wrong: Sequence[Update],
    errors: Mapping[str, float],
) -> list[Finding]:
    """Findings, arrays that differ for one reason together."""
    said: dict[tuple[str, str], tuple[Cause, str, list[str]]] = {}
    unknown: list[str] = []
    seen: list[tuple[tuple[np.ndarray, np.ndarray], list[Cause]]] = []
    explained: list[Cause] = []
    known: dict[str, list[tuple[Fit, Explanation]]] = {"all": []}
    by_size = sorted(errors, key=lambda n: -min(right[0].before[n].size, probes.COLUMNS))
    for name in by_size:
        tracks = [probes.track(u, probe.gradients, name) for u in (right, wrong)]
        ours = _reference_member(tracks[0], known["all"], reference.hints)
        # What no member makes for one array, none makes for the next: the search is long.
        searched = ours if not unknown or known["all"] else None
        result = searched and _candidate_member(searched, tracks[1], known["all"], candidate.hints)
        if not ours or not result:
            unknown.append(name)
            continue
        known["all"].append((ours, result))
        found = [("update", c) for c in causes(ours, result, candidate.framework)]
        rates = _rates(ours, result, tracks)
        if rates is not None:
            explained = _explain_once(rates, seen)
            found += [("learning rate", cause) for cause in explained]
        if not found or (rates is not None and not explained):
            unknown.append(name)
        for what, cause in found:
            said.setdefault((what, cause.text), (cause, what, []))[2].append(name)
    everywhere = set(errors) == set(right[0].before)
    findings = [
        Finding(
            what,
            "every array" if everywhere and len(names) == len(errors) else shortened(names),
            max(errors[n] for n in names),
            [cause],
        )
        for cause, what, names in said.values()
    ]
    if unknown:
        error = max(errors[n] for n in unknown)
        findings.append(Finding("update", shortened(unknown), error))
    return findings


def _start(track: Track) -> Track:
    return track.first_steps(probes.SMALL + probes.MIXED)


def _reference_member(
    track: Track, known: Sequence[tuple[Fit, Explanation]], hints: Sequence[Constants]
) -> Fit | None:
    """The member of one array: another array's where it does, or solved."""
    start = _start(track)
    for ours, _ in known:
        for form in _variants(ours.form):
            if set(form.constants()) <= set(ours.constants):
                found = evaluate(form, ours.constants, start)
                if found.accepted and np.all(np.isfinite(found.rates)):
                    return found
    small = identify(track.first_steps(probes.SMALL), tuple(hints))
    return None if small is None else _with_clip(small, start)


def _variants(form: Form) -> list[Form]:
    """The same member, and the one without decay: biases are often left out of it."""
    return [form] if form.decay == "none" else [form, replace(form, decay="none")]


def _with_clip(small: Fit, track: Track) -> Fit | None:
    """A member found from small gradients, with the clipping that larger ones show."""
    steady = replace(track, rates=np.ones(len(track.gradients)))
    for record in (steady, track) if track.rates is None else (track,):
        found = evaluate(small.form, small.constants, record)
        if found.accepted:
            return replace(found, spread=small.spread)
        for clip in _CLIPS:
            clipped = fit(replace(small.form, clip=clip), record, known=small.constants)
            if clipped and clipped.accepted:
                return replace(clipped, spread={**small.spread, **clipped.spread})
    return None


def _candidate_member(
    ours: Fit,
    track: Track,
    known: Sequence[tuple[Fit, Explanation]],
    hints: Sequence[Constants],
) -> Explanation | None:
    start = _start(track)
    for _, explanation in known:
        theirs = explanation.candidate
        for form in _variants(theirs.form):
            constants = {n: theirs.constants[n] for n in form.constants()}
            found = evaluate(form, constants, start)
            if found.accepted and form.distance(ours.form) <= 2:
                found = replace(found, spread=theirs.spread)
                return Explanation(found, explanation.changed)
    return explain(ours, start, tuple(hints))


def _rates(
    ours: Fit, explanation: Explanation, tracks: Sequence[Track]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The learning rates of all updates on both sides; None where they are the same."""
    theirs = explanation.candidate
    right, wrong = (
        evaluate(f.form, f.constants, probes.without_rates(t)).rates
        for f, t in zip((ours, theirs), tracks, strict=True)
    )
    if _same_rates(right, wrong):
        return None
    return _exact(tracks[0], right), _exact(tracks[1], wrong)


def _same_rates(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=1e-6, atol=1e-9 * float(np.abs(a).max()))


def _explain_once(
    rates: tuple[np.ndarray, np.ndarray],
    seen: list[tuple[tuple[np.ndarray, np.ndarray], list[Cause]]],
) -> list[Cause]:
    """The causes of a pair of sequences, those of another array's where they are the same."""
    for other, causes_there in seen:
        if all(_same_rates(a, b) for a, b in zip(other, rates, strict=True)):
            return causes_there
    found = schedules.explain_rates(*rates)
    seen.append((rates, found))
    return found


def _exact(track: Track, rates: np.ndarray) -> np.ndarray:
    """Rates as the side itself states them, where what was solved agrees."""
    known = track.rates
    if known is not None and np.allclose(known, rates, rtol=1e-6, atol=0):
        return known
    return rates
