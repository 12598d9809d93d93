"""A user's own training in torch and in JAX, on the same weights and batches, step by step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from parity.explain.causes.evidence import Cause
from parity.observe import settings
from parity.observe.settings import NotComparableError
from parity.training import averages, clipping
from parity.training.jax_loop import jax_loop
from parity.training.pairing import Pairing, pair_arrays
from parity.training.record import Loop, Named, Step
from parity.training.result import Finding, TrainingResult, shortened
from parity.training.torch_loop import torch_loop
from parity.training.updates import compare_updates

# As much as neighbouring floating-point numbers move a value, many times over.
SAFETY = 32.0
DRAWS = 2
UPDATES = 40


def train_step(
    torch: Any,
    jax: Any,
    batches: Iterable[Any] | None = None,
    *,
    jax_batches: Iterable[Any] | None = None,
    renames: Mapping[str, str] | None = None,
    reference: Literal["torch", "jax"] = "torch",
    weights: Literal["torch", "jax"] = "torch",
    updates: int = UPDATES,
) -> TrainingResult:
    """Hold a training in JAX against one in torch.

    Both start from the same weights and take the same batches, in float64. Loss and gradients are
    compared at the reference's weights of every step; the optimizers alone, on gradients made for
    it, with clipping, decay and schedule; kept averages and running statistics by their formulas.
    What rounding does is measured: the reference runs again from neighbouring numbers.

    Args:
        torch: (module, optimizer, function[, scheduler][, average]); function(module, batch) or
            function(batch) returns the loss, or does the whole step where it calls
            optimizer.step(). For an optimizer alone: (make, tensors by name), where make(list of
            tensors) returns the optimizer, or (optimizer, scheduler).
        jax: (parameters, optax transformation, loss), with loss(parameters, batch); or (state,
            step), with step(state, batch) returning the new state and metrics. For an optimizer
            alone: (transformation, parameters).
        batches: of NumPy arrays, as both functions take them; None for optimizers alone.
        jax_batches: those of the JAX side, where they differ in form.
        renames: names of jax's arrays to torch's, where names, contents and shapes do not tell.
        reference: the side that is taken to be right.
        weights: whose weights both start from.
        updates: how many updates the optimizers make by themselves; a schedule is seen so far.
    Raises:
        NotComparableError: nothing could be compared; the message says what to do.
    """
    settings.make_comparable()
    ours, theirs = torch_loop(torch), jax_loop(jax)
    pairing = pair_arrays(ours.parameters, theirs.parameters, renames or {}, "parameters")
    given = [list(batches or ()), list(jax_batches or batches or ())]
    findings: list[Finding] = []
    notes: list[str] = []
    compared: dict[str, float] = {}
    loops = {"torch": ours, "jax": theirs}
    right, wrong = loops[reference], loops["jax" if reference == "torch" else "torch"]
    runs = None
    if given[0]:
        runs = _Runs(ours, theirs, pairing, given[0], given[1], weights, reference, renames or {})
        for part in (_losses, _clipping, _averages, _statistics):
            found, errors = part(runs)
            findings += found
            compared |= errors
    if right.update is not None and wrong.update is not None:
        found, error = compare_updates(right, wrong, pairing, updates)
        findings += found
        compared["updates"] = error
    elif runs is not None:
        notes.append("the optimizer is not seen by itself: updates are compared as steps make them")
        found, errors = _whole_updates(runs)
        findings += found
        compared |= errors
    if not compared:
        raise NotComparableError("batches: none are given, and there is no optimizer to compare")
    return TrainingResult(sorted(findings, key=lambda f: -len(f.causes)), compared, notes)


class _Runs:
    """Both sides' steps under torch's names, from the same weights."""

    def __init__(
        self,
        torch: Loop,
        jax: Loop,
        pairing: Pairing,
        torch_batches: Sequence[Any],
        jax_batches: Sequence[Any],
        weights: str,
        reference: str,
        renames: Mapping[str, str],
    ) -> None:
        self.reference = reference
        start = torch.parameters if weights == "torch" else pairing.to_torch(jax.parameters)
        buffers = Pairing({})
        if torch.statistics and jax.statistics:
            buffers = pair_arrays(torch.statistics, jax.statistics, renames, "statistics")
        kept = torch.statistics if weights == "torch" else buffers.to_torch(jax.statistics)

        def run_torch(values: Named, held: Named, batches: Sequence[Any]) -> list[Step]:
            return torch.run(values, held, batches)

        def run_jax(values: Named, held: Named, batches: Sequence[Any]) -> list[Step]:
            steps = jax.run(pairing.to_jax(values), buffers.to_jax(held), batches)
            return [_under_torch_names(step, pairing, buffers) for step in steps]

        sides = [(run_torch, torch_batches), (run_jax, jax_batches)]
        if reference == "jax":
            sides.reverse()
        (self._run_right, self._right_batches), (self._run_wrong, self._wrong_batches) = sides
        self.start, self.buffers = start, kept
        self.right = self._run_right(start, kept, self._right_batches)
        self.wrong = self._run_wrong(start, kept, self._wrong_batches)

    def neighbours(self) -> list[list[Step]]:
        """The reference from weights moved by one unit in the last place."""
        unit = float(np.finfo(np.float64).eps)
        found = []
        for draw in range(DRAWS):
            rng = np.random.default_rng([draw, 53])
            moved = {
                n: a * (1 + unit * rng.integers(-1, 2, a.shape)) for n, a in self.start.items()
            }
            found.append(self._run_right(moved, self.buffers, self._right_batches))
        return found

    def candidate_from(self, index: int) -> Step:
        """One step of the candidate at the weights and statistics of the reference's step."""
        held = self.right[index - 1].statistics if index else self.buffers
        batch = [self._wrong_batches[index]]
        return self._run_wrong(self.right[index].before, held, batch)[0]


def _under_torch_names(step: Step, pairing: Pairing, buffers: Pairing) -> Step:
    return replace(
        step,
        gradients=pairing.to_torch(step.gradients),
        clipped=pairing.to_torch(step.clipped),
        before=pairing.to_torch(step.before),
        after=pairing.to_torch(step.after),
        statistics=buffers.to_torch(step.statistics),
        averages={n: pairing.to_torch(a) for n, a in step.averages.items()},
    )


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    gap = float(np.linalg.norm(np.asarray(a, float) - np.asarray(b, float)))
    return gap if np.isfinite(gap) else np.inf


def _judge(
    triples: Iterable[tuple[str, np.ndarray, np.ndarray, list[np.ndarray]]],
) -> tuple[dict[str, float], float]:
    """Names whose two values differ by more than rounding with the error; and the largest error."""
    bad: dict[str, float] = {}
    largest = 0.0
    for name, right, wrong, moved in triples:
        size = float(np.linalg.norm(right))
        gap = _gap(wrong, right)
        floor = SAFETY * max((_gap(m, right) for m in moved), default=0.0)
        error = gap / max(size, floor, 1e-300)
        largest = max(largest, error)
        if gap > floor + 1e-13 * size:
            bad[name] = max(bad.get(name, 0.0), error)
    return bad, largest


def _losses(runs: _Runs) -> tuple[list[Finding], dict[str, float]]:
    """Loss and gradients, at the reference's weights of every step."""
    moved = runs.neighbours()
    losses, gradients = [], []
    locals_: list[Step] = []
    for index, right in enumerate(runs.right):
        # From the reference's weights, what an earlier step did wrong does not show again.
        wrong = runs.candidate_from(index)
        locals_.append(wrong)
        near = [other[index] for other in moved]
        if right.loss is not None and wrong.loss is not None:
            values = [np.array(s.loss) for s in (right, wrong, *near) if s.loss is not None]
            losses.append((f"step {index + 1}", values[0], values[1], values[2:]))
        for name, grad in right.gradients.items():
            if name in wrong.gradients:
                drawn = [s.gradients[name] for s in near]
                gradients.append((name, grad, wrong.gradients[name], drawn))
    found, errors = [], {}
    for what, values in (("loss", losses), ("gradients", gradients)):
        if values:
            bad, errors[what] = _judge(values)
            if bad:
                causes = _factor(runs, locals_) if what == "gradients" else []
                found.append(Finding(what, shortened(bad), max(bad.values()), causes))
    return found, errors


def _factor(runs: _Runs, wrong: list[Step]) -> list[Cause]:
    """One factor of all gradients at every step, the same at each: a scaled loss."""
    factors = []
    for ours, theirs in zip(runs.right, wrong, strict=True):
        names = [n for n in ours.gradients if n in theirs.gradients]
        a = np.concatenate([ours.gradients[n].ravel() for n in names])
        b = np.concatenate([theirs.gradients[n].ravel() for n in names])
        factor = float(a @ b / (a @ a)) if a.any() else np.nan
        if not np.linalg.norm(b - factor * a) <= 1e-10 * np.linalg.norm(b):
            return []
        factors.append(factor)
    if np.ptp(factors) <= 1e-9 * abs(factors[0]):
        text = f"all gradients are {factors[0]:.6g} times the reference's"
        return [Cause(text, "divide the loss by that")]
    listed = ", ".join(f"{f:.6g}" for f in factors[:4])
    text = f"all gradients are scaled by another factor at every step ({listed})"
    return [Cause(text, "divide the loss by the number that the reference divides by")]


def _clipping(runs: _Runs) -> tuple[list[Finding], dict[str, float]]:
    return clipping.compare_clipping(runs.right, runs.wrong)


def _averages(runs: _Runs) -> tuple[list[Finding], dict[str, float]]:
    sides = []
    for steps in (runs.right, runs.wrong):
        kept = steps[0].averages
        names = next(iter(kept), None)
        if len(kept) > 1 or names is None:
            sides.append(None)
            continue
        weights = np.stack([_flat(steps[0].before), *(_flat(s.after) for s in steps)])
        sides.append((weights, np.stack([_flat(s.averages[names]) for s in steps])))
    if sides[0] is None and sides[1] is None:
        return [], {}
    if sides[0] is None or sides[1] is None:
        having = "reference" if sides[1] is None else "candidate"
        text = f"the {having} keeps an average of the weights, the other does not"
        cause = Cause(text, "keep it on both sides, and evaluate the same")
        return [Finding("average", "weights", np.inf, [cause])], {"averages": np.inf}
    (p, a), (q, b) = sides
    right, wrong = averages.identify_average(p, a), averages.identify_average(q, b)
    floor = _gap(q, p) * SAFETY
    error = _gap(a, b) / float(np.linalg.norm(a))
    if right == wrong and right is not None:
        return [], {"averages": error if _gap(q, p) <= 1e-9 * np.linalg.norm(p) else 0.0}
    if right is None or wrong is None:
        if _gap(a, b) <= floor + 1e-12 * float(np.linalg.norm(a)):
            return [], {"averages": error}
        return [Finding("average", "weights", error)], {"averages": error}
    causes = averages.explain_averages(right, wrong)
    return [Finding("average", "weights", error, causes)], {"averages": error}


def _flat(named: Named) -> np.ndarray:
    return np.concatenate([np.asarray(named[n], float).ravel() for n in sorted(named)])


def _statistics(runs: _Runs) -> tuple[list[Finding], dict[str, float]]:
    """Running statistics after one step from the reference's weights and statistics."""
    names = [n for n in runs.right[0].statistics if n in runs.wrong[0].statistics]
    if not names:
        return [], {}
    triples, befores = [], []
    moved = runs.neighbours()
    for index, right in enumerate(runs.right):
        wrong = runs.candidate_from(index)
        held = runs.right[index - 1].statistics if index else runs.buffers
        for n in names:
            near = [m[index].statistics[n] for m in moved]
            triples.append((n, right.statistics[n], wrong.statistics[n], near))
            befores.append((n, held[n], right.statistics[n], wrong.statistics[n]))
    bad, largest = _judge(triples)
    if not bad:
        return [], {"statistics": largest}
    causes = _momentum([b for b in befores if b[0] in bad])
    return [Finding("statistics", shortened(bad), max(bad.values()), causes)], {
        "statistics": largest
    }


def _momentum(rows: list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]) -> list[Cause]:
    """Both sides move towards the same: by how much differs, the same at every update and array."""
    ratios: dict[str, list[float]] = {}
    for _, held, right, wrong in rows:
        a, b = (right - held).ravel(), (wrong - held).ravel()
        if a.size < 4 or not a.any():
            return []
        ratio = float(a @ b / (a @ a))
        if np.linalg.norm(b - ratio * a) > 1e-9 * np.linalg.norm(a):
            return []
        ratios.setdefault(f"{ratio:.6g}", []).append(ratio)
    if len(ratios) != 1 or len(rows) < 2:
        return []
    text = f"running statistics move {next(iter(ratios))} times as far as the reference's"
    fix = "flax's momentum is 1 - torch's: 0.9 there is 0.1 here"
    return [Cause(text, fix)]


def _whole_updates(runs: _Runs) -> tuple[list[Finding], dict[str, float]]:
    """What steps make of the parameters, where optimizers are not seen by themselves."""
    moved = runs.neighbours()
    triples = []
    for index, (right, wrong) in enumerate(zip(runs.right, runs.wrong, strict=True)):
        for n in right.after:
            near = [m[index].after[n] - m[index].before[n] for m in moved]
            a, b = (s.after[n] - s.before[n] for s in (right, wrong))
            unit = float(np.finfo(float).eps) * np.abs(right.after[n])
            triples.append((n, a, b, [*near, a + unit]))
    bad, largest = _judge(triples)
    found = [Finding("update", shortened(bad), max(bad.values()))] if bad else []
    return found, {"updates": largest}
