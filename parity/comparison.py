"""Compare any torch model with any JAX model: outputs, gradients, where they part, why."""

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Literal

import numpy as np

from parity.align import precision
from parity.align.locate import Alignment, State, outputs_agree
from parity.align.narrow import Narrowed, compare_operations
from parity.align.rounding import measure_rounding
from parity.align.sides import Inputs, cast, is_floating, jax_program, torch_program
from parity.align.verdict import (
    Compared,
    Kind,
    OutputPair,
    compare_arrays,
    distance,
    pair_outputs,
    probe_outputs,
)
from parity.explain.backward import find_backward_fault
from parity.explain.faults import Faults, find_forward_faults
from parity.models.functions import framework_named
from parity.models.jax_models import jax_model
from parity.models.model import JaxModel, TorchModel
from parity.models.torch_models import is_torch, torch_model
from parity.observe import settings
from parity.observe.settings import NotComparableError
from parity.programs.program import Program, Results
from parity.report import Result
from parity.weights.contents import Finding, find_copying_faults
from parity.weights.settle import settle
from parity.weights.sharing import (
    Model,
    Shared,
    Whose,
    share_alike,
    share_weights,
    shared_by,
)

Key = tuple[Kind, str]
DTYPES = ("float64", "float32", "bfloat16", "float16")
Report = Callable[[str], None]
# The weights of either side's outputs in the sum that is differentiated.
Probes = tuple[dict[int, np.ndarray], dict[int, np.ndarray]]


def compare(
    torch: Any,
    jax: Any,
    variables: Mapping[str, Any] | None = None,
    inputs: Any = (),
    *,
    jax_inputs: Any = None,
    weights: Literal["torch", "jax", "loaded"] | None = None,
    renames: Mapping[str, str] | None = None,
    weight_map: str | None = None,
    dtype: str = "float64",
    reference: Literal["torch", "jax"] = "torch",
    gradients: bool = True,
    torch_options: Mapping[str, Any] | None = None,
    jax_options: Mapping[str, Any] | None = None,
    report: Report = lambda line: None,
) -> Result:
    """Hold a JAX model against a torch model, whole.

    Both run in float64 on the same weights and inputs, as programs of primitive operations. Equal
    are two models whose outputs and whose gradients, by parameters and by inputs, differ by
    rounding alone; how far rounding moves them is measured. Where they differ, the faults: the
    source lines between which each lies on either side, and what explains it.

    Args:
        torch: a module in evaluation mode, which is not changed, or (function, tensors).
        jax: a Linen module, (module, variables), an NNX or Equinox module, what `hk.transform`
            returned, or (function, pytree of arrays).
        variables: those of a Linen module; the same as handing over (module, variables).
        inputs: arrays by position or by name, nested as the models take them.
        jax_inputs: the JAX model's own, where the two take different ones.
        weights: whose weights both sides use; "loaded" leaves both as they are. Default: JAX's
            where they were handed over, else torch's.
        renames: names of JAX arrays or modules to torch's, where the map of the weights is not
            found without: {"Dense_0": "fc1"}.
        weight_map: the text of a map of the weights, as `Result.weight_map` gives it.
        dtype: "float64", or a lower one, in which each side's error is held against the float64
            truth (`parity.align.narrow`).
        reference: the side that is taken to be right.
        gradients: compare them too.
        torch_options, jax_options: further keyword arguments of the calls: {"train": False}.
        report: is told what is going on.
    Raises:
        NotComparableError: nothing could be compared; the message says what to do.
    """
    if dtype not in DTYPES:
        raise NotComparableError(f"dtype: {dtype!r} is not usable; one of {', '.join(DTYPES)}")
    built = jax if variables is None else (jax, variables)
    if is_torch(built) and not is_torch(torch):
        torch, built = built, torch
    fed = _inputs("inputs", inputs)
    other_fed = fed if jax_inputs is None else _inputs("jax inputs", jax_inputs)
    base = _model(torch, fed, torch_options, "torch")
    target = _model(built, other_fed, jax_options, "jax")
    settings.require_comparable(dtype, base.module if isinstance(base, TorchModel) else None)
    report("copying weights")
    whose: Whose = weights or ("jax" if isinstance(target, JaxModel) and target.loaded else "torch")

    def record() -> tuple[Program, Program]:
        return (
            _record(base, base.arrays, fed, "float64"),
            _record(target, target.arrays, other_fed, "float64"),
        )

    if isinstance(base, TorchModel) and isinstance(target, JaxModel):
        shared = share_weights(base, target, whose, renames or {}, weight_map, record)
    else:
        shared = share_alike(base, target, weights or "torch")
    for side, arrays in (("torch", shared.base), ("jax", shared.target)):
        settings.require_finite(side, arrays)
    pair = _Pair(base, target, shared, whose, fed, other_fed, reference, gradients, report)
    # Masks and faults overflow in what is only looked at.
    with np.errstate(all="ignore"):
        return pair.compare(dtype)


def _model(
    built: Any, inputs: Inputs, options: Mapping[str, Any] | None, of_functions: str
) -> Model:
    """A model; a plain function whose code tells nothing is written in `of_functions`."""
    plain = isinstance(built, FunctionType)
    if is_torch(built) or (plain and (framework_named(built) or of_functions) == "torch"):
        return torch_model(built, options)
    return jax_model(built, inputs.args, inputs.kwargs, options)


def _record(model: Model, arrays: Mapping[str, np.ndarray], inputs: Inputs, dtype: str) -> Program:
    if isinstance(model, TorchModel):
        return torch_program(model, arrays, inputs, dtype)
    return jax_program(model, arrays, inputs, dtype)


def _inputs(name: str, given: Any) -> Inputs:
    by_name = isinstance(given, Mapping)
    found = Inputs([], given) if by_name else Inputs(list(given), {})
    empty = [n for n, array in found.named().items() if array.size == 0]
    if empty:
        raise NotComparableError(f"{name}: {empty[0]} has no elements, so nothing is compared")
    settings.require_finite(name, {n: a for n, a in found.named().items() if is_floating(a)})
    return found


class _Pair:
    """Two models with shared weights."""

    def __init__(
        self,
        base: Model,
        target: Model,
        shared: Shared,
        whose: Whose,
        inputs: Inputs,
        target_inputs: Inputs,
        reference: str,
        gradients: bool,
        report: Report,
    ):
        self.base, self.target, self.shared, self.whose = base, target, shared, whose
        self.inputs, self.target_inputs = inputs, target_inputs
        self.reference, self.gradients, self.report = reference, gradients, report

    def compare(self, dtype: str) -> Result:
        base, target = self._record("float64")
        outputs = pair_outputs(base, target)
        if self._settle(base, target, outputs):
            base, target = self._record("float64")
            outputs = pair_outputs(base, target)
        _require_signal(base, target, outputs)
        islands = precision.find_islands(base), precision.find_islands(target)
        epsilon = precision.unit(islands)
        probes = probe_outputs(base, outputs, target) if self.gradients else ({}, {})
        compared = self._compare(base, target, outputs, probes, epsilon)
        faults, narrowed = Faults(complete=True), []
        if not all(found.equal for found in compared):
            faults = self._find_faults(base, target, outputs, probes, compared, epsilon)
        elif dtype != "float64":
            narrowed = self._narrow(base, target, outputs, epsilon, dtype)
        return Result(
            dtype,
            self.reference,
            settings.describe() | self._mode(),
            compared,
            faults,
            islands,
            narrowed,
            self.shared.weight_map,
            self._copying_faults(),
            ("torch", "jax") if base.framework != target.framework else ("first", "second"),
        )

    def _record(self, dtype: str) -> tuple[Program, Program]:
        self.report(f"running both sides in {dtype}")
        return (
            _record(self.base, self.shared.base, self.inputs, dtype),
            _record(self.target, self.shared.target, self.target_inputs, dtype),
        )

    def _settle(self, base: Program, target: Program, outputs: Sequence[OutputPair]) -> bool:
        """Choose among the layers that weights may belong to by the values that both sides have.

        Whether anything was chosen otherwise than before.
        """
        known = self.shared.parts_map
        if known is None or not known.choices or self.whose != "torch":
            return False
        numbers = {pair.base: pair.target for pair in outputs}
        tolerance = precision.content_tolerance(precision.unit(()))
        if outputs_agree(State.start(base), target, numbers, tolerance):
            return False
        self.report("settling which weights belong together")
        wide = {n: cast(a, "float64") for n, a in self.shared.base.items()}
        settled = settle(known, wide, base, target, self.shared.sections)
        if settled is known:
            return False
        assert isinstance(self.base, TorchModel)
        assert isinstance(self.target, JaxModel)
        self.shared = shared_by(settled, self.shared.sections, self.base, self.target, self.whose)
        return True

    def _mode(self) -> dict[str, str]:
        return settings.mode(self.base.module) if isinstance(self.base, TorchModel) else {}

    def _compare(
        self,
        base: Program,
        target: Program,
        outputs: Sequence[OutputPair],
        probes: Probes,
        epsilon: float,
    ) -> list[Compared]:
        """Outputs and gradients, each beside what rounding explains."""
        weights, target_weights = probes

        def ours(results: Results) -> dict[Key, np.ndarray]:
            return self._named_results(base, self.base, results, {p.name: p.base for p in outputs})

        def theirs(results: Results) -> dict[Key, np.ndarray]:
            computed, gradients = results
            laid_out = {p.target: computed[p.target].transpose(p.axes) for p in outputs}
            names = {p.name: p.target for p in outputs}
            found = self._named_results(target, self.target, (laid_out, gradients), names)
            parameters = {n: g for (kind, n), g in found.items() if kind == "parameter gradient"}
            kept = {key: g for key, g in found.items() if key[0] != "parameter gradient"}
            for name, gradient in self.shared.to_base_gradients(parameters).items():
                kept["parameter gradient", name] = gradient
            return kept

        self.report("measuring rounding")
        tolerance = precision.content_tolerance(epsilon)
        again, other_again = base.rerun({}, weights), target.rerun({}, target_weights)
        _require_repeatable(base, again, tolerance)
        _require_repeatable(target, other_again, tolerance)
        right, other = ours(again), theirs(other_again)
        moved = measure_rounding(base, weights, epsilon, ours, right)

        def judge() -> list[Compared]:
            return [
                compare_arrays(name, kind, other[kind, name], array, moved[kind, name], tolerance)
                for (kind, name), array in right.items()
                if (kind, name) in other
            ]

        if not all(found.equal for found in judge()):
            # What is zero but for rounding is as large as either side's own rounding makes it.
            rounded = measure_rounding(target, target_weights, epsilon, theirs, other)
            moved = {key: max(step, rounded.get(key, 0.0)) for key, step in moved.items()}
        return judge()

    def _named_results(
        self, program: Program, model: Model, results: Results, outputs: Mapping[str, int]
    ) -> dict[Key, np.ndarray]:
        """A side's results by kind and name."""
        computed, gradients = results
        found: dict[Key, np.ndarray] = {("output", n): computed[i] for n, i in outputs.items()}
        if not self.gradients:
            return found
        for name, number in program.named("parameter").items():
            if number in gradients and name in model.trainable:
                found["parameter gradient", name] = gradients[number]
        for name, number in program.named("input").items():
            if number in gradients:
                found["input gradient", name] = gradients[number]
        return found

    def _copying_faults(self) -> list[Finding]:
        """What was copied wrongly, where both sides brought their own weights."""
        if self.whose != "loaded" or self.shared.weight_map is None:
            return []
        return find_copying_faults(self.shared.weight_map, self.shared.base, self.shared.target)

    def _narrow(
        self,
        base: Program,
        target: Program,
        outputs: Sequence[OutputPair],
        epsilon: float,
        dtype: str,
    ) -> list[Narrowed]:
        numbers = {pair.base: pair.target for pair in outputs}
        tolerance = precision.content_tolerance(epsilon)
        matches = Alignment(State.start(base), target, numbers, tolerance).matches
        narrow = self._record(dtype)
        return list(compare_operations(base, target, matches, narrow, dtype))

    def _find_faults(
        self,
        base: Program,
        target: Program,
        outputs: Sequence[OutputPair],
        probes: Probes,
        compared: Sequence[Compared],
        epsilon: float,
    ) -> Faults:
        self.report("locating the faults")
        numbers = {pair.base: pair.target for pair in outputs}
        tolerance = precision.content_tolerance(epsilon)
        if not all(c.equal for c in compared if c.kind == "output"):
            return find_forward_faults(base, target, numbers, tolerance, self.report)
        alignment = Alignment(State.start(base), target, numbers, tolerance)
        fault = find_backward_fault(alignment, probes)
        return Faults([] if fault is None else [fault], complete=True)


def _require_repeatable(program: Program, again: Results, tolerance: float) -> None:
    """Refuse a side that gives other outputs from the same inputs: it draws random numbers."""
    for number, array in again[0].items():
        gap = distance(array, program.values[number].array)
        if gap <= tolerance:
            continue
        drawn = [op for op in program.operations if any(word in op.name for word in _RANDOM)]
        where = f" at {drawn[0].source}: {drawn[0].source.code}" if drawn else ""
        raise NotComparableError(
            f"{program.framework}: two calls on the same inputs differ by {gap:.1e}: it draws "
            f"random numbers{where}; turn dropout and noise off, as by model.eval()"
        )


_RANDOM = ("dropout", "bernoulli", "rand", "multinomial", "normal", "uniform", "exponential")


def _require_signal(base: Program, target: Program, outputs: Sequence[OutputPair]) -> None:
    """Refuse outputs that say nothing: a constant equals a constant whatever is wrong."""
    if not any(base.values[n].is_float for n in base.outputs.values()):
        raise NotComparableError("the output holds no floating-point values to compare")
    if not outputs:
        shapes = [
            [tuple(program.values[n].array.shape) for n in program.outputs.values()]
            for program in (base, target)
        ]
        raise NotComparableError(
            f"no output of one side can be one of the other's: shapes {shapes[0]} in torch, "
            f"{shapes[1]} in JAX"
        )
    arrays = [base.values[pair.base].array for pair in outputs]
    if any(array.size == 0 for array in arrays):
        raise NotComparableError("the output has no elements, so nothing is compared")
    if all(a.size > 1 and np.ptp(a[np.isfinite(a)]) == 0 for a in arrays if np.isfinite(a).any()):
        raise NotComparableError(
            "inputs: the output is constant, so nothing is compared; give other inputs or weights"
        )
