"""The parts and constants of an optimizer, said as an engineer says them."""

from parity.training.family import Form
from parity.training.fit import Fit

_PLACES = {
    "outside": "outside the root",
    "inside": "inside the root",
    "before correction": "beside the root before v is bias-corrected, which enlarges it",
    "bound": "as a lower bound of the root",
}
_DECAYS = {
    "none": "nothing decays",
    "coupled": "decay * p is added to the gradient (L2) and goes through the moments",
    "decoupled": "rate * decay * p is subtracted from the parameters (decoupled)",
    "free": "decay * p is subtracted without the learning rate",
    "after": "parameters decay after the step, not as they were before it",
}
_CLIPS = {
    "none": "gradients are not clipped",
    "norm": "gradients are clipped by their global norm",
    "norm, 1e-6 added": "gradients are clipped by their global norm with 1e-6 added to it",
    "value": "single values of the gradients are clipped",
    "array": "each array's gradient is clipped by its own norm",
}
_FIRST = {
    "none": "there is no momentum",
    "sum": "gradients enter momentum in full",
    "average": "gradients enter momentum by 1 - beta1 (an average)",
    "dampened": "gradients enter momentum by 1 - beta1 after the first (dampening)",
}
_SECOND = {
    "none": "the update is not divided by the root of squares",
    "average": "squares of gradients are averaged",
    "sum": "squares of gradients are summed",
    "maximum": "the running maximum of gradients divides (Adamax)",
}
_NESTEROV = {
    "none": "there is no Nesterov look-ahead",
    "alike": "Nesterov's look-ahead is taken, corrected as the moment is",
    "ahead": "Nesterov's look-ahead is taken with the next step's correction (NAdam)",
}
_AMSGRAD = {
    "none": "the present second moment divides",
    "raw": "the largest second moment so far divides (AMSGrad, before bias correction)",
    "corrected": "the largest bias-corrected second moment so far divides (AMSGrad)",
}
_SQUARED = {
    "all": "v averages squares of the gradient that m sees",
    "without decay": "v averages squares of the gradient without decay, m with it",
    "belief": "v averages squares of gradient - m (AdaBelief)",
}
_FLAGS = {
    "corrected_first": ("the first moment is{} bias-corrected", "divide m by 1 - beta1**t"),
    "corrected_second": ("the second moment is{} bias-corrected", "divide v by 1 - beta2**t"),
    "centered": ("the second moment is{} centered", "subtract the squared mean of gradients"),
    "stale": (
        "the second moment that divides does{} leave the present gradient out",
        "update v after it is used",
    ),
    "sign": ("the sign of the update is{} taken", "take the sign of the interpolated momentum"),
    "delta": (
        "the update is{} scaled by the root mean square of past updates",
        "multiply by sqrt(mean of squared updates + epsilon)",
    ),
    "root": ("the root of the second moment is{} taken", "take its square root"),
}
_TABLES = {
    "first": _FIRST,
    "second": _SECOND,
    "nesterov": _NESTEROV,
    "amsgrad": _AMSGRAD,
    "squared": _SQUARED,
    "decay": _DECAYS,
    "clip": _CLIPS,
}

_OF_FIRST = ("corrected_first", "nesterov", "order")
_OF_SECOND = (
    *("epsilon", "corrected_second", "centered", "stale", "started", "delta"),
    *("amsgrad", "squared", "root", "order"),
)


def part(name: str, reference: Fit, candidate: Fit, side: str) -> tuple[str, str]:
    """(text, fix) for one part of the structure that differs."""
    ours, theirs = getattr(reference.form, name), getattr(candidate.form, name)
    if name == "epsilon" and "none" not in (ours, theirs):
        eps = f"{candidate.constants['epsilon']:.3g}"
        text = f"epsilon {eps} {_PLACES[theirs]}, where the reference has it {_PLACES[ours]}"
        return text, _epsilon_fix(ours, theirs, reference, side)
    if name == "counted":
        text = f"bias correction counts updates from {theirs}, in the reference from {ours}"
        return text, f"count the first update as {ours}"
    if name == "order":
        text = (
            "momentum is taken of gradients already divided by their root mean square"
            if theirs == "after"
            else "momentum is taken of gradients before they are divided"
        )
        return f"{text}; in the reference it is the other way round", "swap the two steps"
    if name == "started":
        start = (candidate if theirs else reference).constants["start"]
        said = f"starts from {start:.6g}", "starts from 0"
        a, b = said if theirs else said[::-1]
        return f"the sum of squares {a}; in the reference it {b}", f"as there: it {b}"
    if name in _FLAGS:
        text, fix = _FLAGS[name]
        said = text.format("" if theirs else " not")
        return f"{said}; in the reference it {_is(name, bool(ours))}", fix if ours else "remove it"
    table = _TABLES[name]
    extra = ""
    if name == "decay" and theirs != "none":
        extra = f" (decay {candidate.constants['decay']:.6g})"
    if name == "clip" and theirs != "none":
        extra = f" (limit {candidate.constants['limit']:.6g})"
    return f"{table[theirs]}{extra}; in the reference {table[ours]}", f"as there: {table[ours]}"


def _is(name: str, yes: bool) -> str:
    verb = "does" if name == "stale" else "is"
    return verb if yes else f"{verb} not"


def _epsilon_fix(ours: str, theirs: str, reference: Fit, side: str) -> str:
    if side == "jax" and {ours, theirs} == {"inside", "outside"} and reference.form.first == "none":
        return f"optax.rmsprop and scale_by_rms: eps_in_sqrt={ours == 'inside'} (default True)"
    if side == "jax" and (ours, theirs) == ("inside", "outside"):
        return "optax.adam: eps_root, not eps"
    return f"put epsilon {_PLACES[ours]}"


def constant(name: str, reference: Fit, candidate: Fit) -> tuple[str, str]:
    """(text, fix) for one constant that differs."""
    ours, theirs = reference.constants[name], candidate.constants[name]
    called = constant_name(name, reference.form)
    text = f"{called} {theirs:.6g}, where the reference has {ours:.6g}"
    return text, f"set it to {ours:.6g}"


def constant_name(name: str, form: Form) -> str:
    """What a constant is called in an optimizer of this structure."""
    adam = form.first == "average" and form.second != "none"
    match name:
        case "beta1" if (form.second == "none" and not form.sign) or form.order == "after":
            return "momentum"
        case "beta2" if not adam and not form.sign:
            return "decay of squares (alpha in torch, decay in optax)"
        case "decay":
            return "weight decay"
        case "start":
            return "initial accumulator"
        case "limit":
            return "clipping limit"
        case _:
            return name


def implied(name: str, reference: Form, candidate: Form) -> bool:
    """Whether another part that differs says it already."""

    kinds = {reference.epsilon, candidate.epsilon}
    if name == "epsilon" and "none" in kinds and reference.started != candidate.started:
        return True

    def appears(moment: str) -> bool:
        kinds = {getattr(form, moment) for form in (reference, candidate)}
        return "none" in kinds and len(kinds) == 2

    return (appears("second") and name in _OF_SECOND) or (appears("first") and name in _OF_FIRST)
