"""How two optimizers differ: the members that make their updates, and what differs of these."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import get_args, get_type_hints

import numpy as np

from parity.explain.causes.evidence import Cause
from parity.training import words
from parity.training.family import Constants, Form, Track
from parity.training.fit import Fit, evaluate, fit

_ADAM = Form("average", "average", corrected_first=True, corrected_second=True, epsilon="outside")
_RMS = Form(second="average", epsilon="outside")
# The usual optimizers, from which a record's member is looked for.
USUAL: tuple[Form, ...] = (
    _ADAM,
    Form("sum"),
    Form(),
    _RMS,
    replace(_RMS, epsilon="inside"),
    Form("sum", nesterov="alike"),
    Form("dampened"),
    Form("average"),
    Form("average", sign=True),
    Form(second="sum", epsilon="outside", started=True),
    Form(second="sum", started=True),
    Form(second="sum", epsilon="outside"),
    Form(second="average", epsilon="inside", delta=True),
    replace(_RMS, centered=True),
    replace(_RMS, epsilon="inside", centered=True),
    replace(_RMS, first="sum", order="after"),
    replace(_RMS, first="sum", order="after", epsilon="inside"),
    replace(_RMS, first="sum", order="after", centered=True),
    replace(_ADAM, nesterov="ahead"),
    replace(_ADAM, nesterov="alike"),
    replace(_ADAM, amsgrad="raw"),
    replace(_ADAM, amsgrad="corrected"),
    Form("average", "maximum", corrected_first=True, epsilon="inside"),
    replace(_ADAM, corrected_first=False, corrected_second=False),
    replace(_ADAM, epsilon="before correction"),
    replace(_ADAM, epsilon="inside"),
    replace(_ADAM, squared="belief"),
)
# A constant differs where it does so by more than it may be wrong.
SAME = 1e-7


@dataclass(frozen=True)
class Explanation:
    """One way in which a candidate's updates arise.

    Args:
        candidate: its member.
        changed: the names of the constants that differ from the reference's; "rate" among them.
    """

    candidate: Fit
    changed: tuple[str, ...]

    def cost(self, reference: Fit) -> int:
        return reference.form.distance(self.candidate.form) + len(self.changed)


def identify(
    track: Track, hints: tuple[Constants, ...] = (), hints_alone: bool = False
) -> Fit | None:
    """The usual member that makes these updates, its constants solved; None where none does.

    With learning rates unknown, a member whose rate is the same at every update is preferred.
    """
    steady = replace(track, rates=np.ones(len(track.gradients)))
    attempts = [steady] if track.rates is None else [track]
    attempts += [track] if track.rates is None else []
    for record in attempts:
        for grid in (False,) if hints_alone else (False, True) if hints else (True,):
            for form in _usual_with_decay():
                found = fit(form, record, hints, grid=grid)
                if found and found.accepted:
                    return found
    return None


def _usual_with_decay() -> Iterator[Form]:
    for forms in (USUAL[:8], USUAL[8:]):
        for decay in ("none", "decoupled", "coupled"):
            for form in forms:
                yield replace(form, decay=decay)


def explain(reference: Fit, track: Track, hints: tuple[Constants, ...] = ()) -> Explanation | None:
    """The member that makes the candidate's updates with the fewest differences from a reference.

    Tried in order: one part of the structure at the same constants and rates; constants at the same
    structure; one part and constants; two parts; the usual members.
    """
    if found := _best(_same_constants(reference, track, edits(reference.form))):
        return Explanation(found, ())
    known = replace(track, rates=reference.rates)
    stages: list[Callable[[], Iterator[Fit]]] = [
        lambda: _solved([reference.form], known, reference, hints),
        lambda: _solved(edits(reference.form), known, reference, ()),
        lambda: _solved([reference.form], replace(track, rates=None), reference, hints),
        lambda: _same_constants(
            reference, track, [two for one in edits(reference.form) for two in edits(one)]
        ),
        lambda: _solved(edits(reference.form), replace(track, rates=None), reference, ()),
    ]
    for stage in stages:
        if found := _best(stage()):
            return Explanation(found, changed_constants(reference, found))
    if (found := identify(known, (reference.constants, *hints), hints_alone=True)) and _shown(
        found, reference
    ):
        return Explanation(found, changed_constants(reference, found))
    return None


def edits(form: Form) -> list[Form]:
    """Every valid structure that differs in one part.

    A part that needs another, such as epsilon with a second moment, brings it.
    """
    hints = get_type_hints(Form)
    found = []
    for f in fields(Form):
        values = (False, True) if hints[f.name] is bool else get_args(hints[f.name])
        for value in values:
            if value != getattr(form, f.name):
                changed = replace(form, **{f.name: value})
                changed = changed if changed.valid() else _completed(form, changed, f.name)
                if changed.valid() and changed not in found:
                    found.append(changed)
    return found


def _completed(form: Form, changed: Form, name: str) -> Form:
    """What follows from a part that is gone or new."""
    if name == "second" and changed.second == "none":
        return replace(
            changed,
            epsilon="none",
            corrected_second=False,
            order="before",
            **dict.fromkeys(("centered", "stale", "started", "delta"), False),
            amsgrad="none",
            squared="all",
        )
    if name == "first" and changed.first == "none":
        return replace(changed, corrected_first=False, nesterov="none", order="before")
    if name == "corrected_second" and form.epsilon == "before correction":
        return replace(changed, epsilon="outside")
    if name == "corrected_first" and form.nesterov == "ahead":
        return replace(changed, nesterov="alike")
    return changed


def _same_constants(reference: Fit, track: Track, forms: list[Form]) -> Iterator[Fit]:
    """Structures at the reference's constants and rates; constants that are new are solved."""
    rates = reference.rates
    for form in dict.fromkeys(forms):
        new = [name for name in form.constants() if name not in reference.constants]
        if not new:
            yield evaluate(form, reference.constants, track, rates)
        elif len(new) == 1:
            known = replace(track, rates=rates)
            found = fit(form, known, known=reference.constants)
            if found and np.allclose(found.rates, rates, rtol=SAME, atol=0):
                yield found


def _solved(
    forms: list[Form], track: Track, reference: Fit, hints: tuple[Constants, ...]
) -> Iterator[Fit]:
    for form in forms:
        found = fit(form, track, (reference.constants, *hints), grid=len(forms) == 1)
        if found is not None and _shown(found, reference):
            yield found


def _shown(found: Fit, reference: Fit) -> bool:
    """Whether every constant that the reference lacks is determined by the updates."""
    return all(x < 1e-3 for n, x in found.spread.items() if n not in reference.constants)


def _best(found: Iterator[Fit]) -> Fit | None:
    """The accepted one that leaves least; the first of those that cannot be told apart."""
    accepted = [one for one in found if one.accepted]
    if not accepted:
        return None
    least = min(one.residual for one in accepted)
    return next(one for one in accepted if one.residual <= max(10 * least, 1.0))


def changed_constants(reference: Fit, candidate: Fit) -> tuple[str, ...]:
    """The constants that both have and that differ, and "rate"."""
    found = []
    for name, ours in reference.constants.items():
        theirs = candidate.constants.get(name)
        slack = 10 * max(candidate.spread.get(name, 0.0), reference.spread.get(name, 0.0))
        if theirs is not None and abs(theirs - ours) > max(SAME, slack) * abs(ours):
            found.append(name)
    if not np.allclose(candidate.rates, reference.rates, rtol=1e-6, atol=0):
        found.append("rate")
    return tuple(found)


def causes(reference: Fit, explanation: Explanation, side: str) -> list[Cause]:
    """The differences in the field's words, each with its fix.

    Args:
        side: the candidate's framework: torch or jax.
    """
    candidate = explanation.candidate
    residual = candidate.residual * float(np.finfo(np.float64).eps)
    found = [
        Cause(*words.part(f.name, reference, candidate, side), residual)
        for f in fields(Form)
        if getattr(reference.form, f.name) != getattr(candidate.form, f.name)
        and not words.implied(f.name, reference.form, candidate.form)
    ]
    for name in explanation.changed:
        if name != "rate":
            text, fix = words.constant(name, reference, candidate)
            found.append(Cause(text, fix, residual))
    return found


def hints_of(groups: list[Mapping[str, object]]) -> tuple[Constants, ...]:
    """Starting points from the settings of a torch optimizer's groups."""
    names = {
        "momentum": "beta1",
        "alpha": "beta2",
        "rho": "beta2",
        "eps": "epsilon",
        "weight_decay": "decay",
        "initial_accumulator_value": "start",
    }
    found = []
    for group in groups:
        hint = {new: x for old, new in names.items() if isinstance(x := group.get(old), float)}
        betas = group.get("betas")
        if isinstance(betas, tuple | list) and len(betas) == 2:
            hint |= dict(zip(("beta1", "beta2"), map(float, betas), strict=True))
        found.append({n: float(x) for n, x in hint.items() if x})
    return tuple(found)
