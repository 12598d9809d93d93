"""Compare any PyTorch module with any Flax module: values, gradients, where they part, and why."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import flax.linen as flax_nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity import settings
from parity.errors import FLOAT64_TOLERANCE, gap, gradient_floors
from parity.examine import Examination, Reference, examine
from parity.flax_side import FlaxSide, first_line
from parity.localize import gradient_norms, names_of
from parity.precision import LIBRARY, Roundings, in_line
from parity.precision import floor as precision_floor
from parity.renames import renamer, require_matching
from parity.settings import NotComparableError
from parity.taps import Run, is_float
from parity.torch_side import TorchSide
from transformer_spec import naming

Inputs = Mapping[str, Any] | Sequence[Any]
Arrays = dict[str, np.ndarray] | list[np.ndarray]
Weights = Literal["torch", "flax", "loaded"]
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Value:
    """One named value of both sides.

    Args:
        kind: value, gradient, or parameter gradient.
        error: ||torch - flax|| / ||flax||.
        max_error: the largest absolute difference.
        ulps: the largest difference in units of the last place of the larger value.
        truth_errors: of the Flax and of the torch side against float64, in lower precision.
        verdict: equal, different, constant (nothing is compared) or not finite.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    error: float
    max_error: float
    ulps: float
    verdict: str
    truth_errors: tuple[float, float] | None = None


@dataclass
class Result:
    """What `compare` found. `equal` is the verdict; `str()` is the report for a terminal."""

    dtype: str
    settings: dict[str, str]
    values: list[Value]
    examination: Examination
    reference: str
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        bad = [v for v in self.values if v.verdict in ("different", "not finite")]
        return self.examination.equal and not bad

    def __str__(self) -> str:
        from parity.terminal import text

        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        found = self.examination
        return {
            "equal": self.equal,
            "dtype": self.dtype,
            "reference": self.reference,
            "settings": self.settings,
            "notes": self.notes,
            "values": [asdict(value) for value in self.values],
            "parameters": {name: str(cause) for name, cause in found.parameters.items()},
            "first_fault": found.first and asdict(found.first),
            "local_faults": [
                asdict(f) | {"causes": [asdict(c) for c in found.causes[f.module]]}
                for f in found.local
            ],
        }


def compare(
    torch_module: nn.Module,
    flax_module: flax_nn.Module,
    variables: Mapping[str, Any] | None = None,
    inputs: Inputs = (),
    *,
    weights: Weights | None = None,
    renames: Mapping[str, str] | None = None,
    dtype: str = "float64",
    reference: Literal["torch", "flax"] = "torch",
    gradients: bool = True,
    torch_options: Mapping[str, Any] | None = None,
    flax_options: Mapping[str, Any] | None = None,
    sizes: Mapping[str, float] | None = None,
) -> Result:
    """Hold a Flax module against a torch module, whole.

    Both run in float64 on the same weights and inputs; every module's inputs and output, every
    tap and every gradient is compared norm-wise to 1e-12. Where they differ, the first fault, every
    module whose own code differs, and the causes that explain the difference down to rounding.

    Args:
        torch_module: in evaluation mode; it is copied, not changed.
        flax_module: a Linen module.
        variables: what its `init` returned or a checkpoint; None: made from torch's weights.
        inputs: NumPy arrays by position, or by name where both sides share the names.
        weights: whose weights both sides use; "loaded" leaves both as they are. Default: Flax's
            where variables are given, else torch's.
        renames: names of Flax modules or parameters to torch's, where the mapping rule is not
            enough: {"Dense_0": "fc1"}.
        dtype: "float64", or a lower one, in which each side's error against the float64 truth may
            be at most twice the other's plus a floor (`parity.precision`).
        reference: the side that is taken to be right.
        gradients: compare them too.
        torch_options, flax_options: further keyword arguments of the calls: {"train": False}.
        sizes: numbers by name that a wrong constant may be made of, such as {"d_model": 512}.
    Raises:
        NotComparableError: nothing could be compared; the message says what to do.
    """
    if dtype not in DTYPES:
        raise NotComparableError(f"dtype: {dtype!r} is not usable; one of {', '.join(DTYPES)}")
    settings.require_comparable(dtype, torch_module)
    models = _Models(torch_module, flax_module, renamer(renames or {}), torch_options, flax_options)
    arrays = _arrays(inputs)
    models.cross(variables, arrays, weights or ("torch" if variables is None else "flax"))
    flax, torch_side = models.sides(arrays, "float64", gradients)
    for side in (flax, torch_side):
        settings.require_finite(side.framework, side.parameters())
    right, other = (torch_side, flax) if reference == "torch" else (flax, torch_side)
    numbers = dict(sizes or {}) | models.sizes()
    found = examine(Reference(right), other, numbers, FLOAT64_TOLERANCE, gradients)
    if found.error or found.free is None:
        raise NotComparableError(found.error or "nothing ran")
    runs = found.free if reference == "flax" else found.free[::-1]
    values = list(_values(runs[0], runs[1], "float64"))
    if dtype != "float64":
        values = list(models.narrow_values(arrays, dtype, gradients))
    _require_signal(runs[0])
    return Result(dtype, settings.describe(), values, found, reference)


@dataclass
class _Models:
    """The two modules with the same weights, to be run in any dtype."""

    torch: nn.Module
    flax: flax_nn.Module
    rename: Callable[[str], str]
    torch_options: Mapping[str, Any] | None
    flax_options: Mapping[str, Any] | None
    variables: dict[str, Any] = field(default_factory=dict)

    def cross(self, variables: Mapping[str, Any] | None, inputs: Arrays, weights: Weights) -> None:
        """Give both the same weights, or leave both as they are."""
        self.torch = copy.deepcopy(self.torch).double()
        template = self._template(inputs) if variables is None else _wrapped(variables)
        named = {self.rename(n): v for n, v in naming.to_named(template["params"]).items()}
        theirs = {name: tuple(p.shape) for name, p in self.torch.named_parameters()}
        shapes = naming.named_shapes(template["params"])
        require_matching({self.rename(n): s for n, s in shapes.items()}, theirs)
        if weights == "flax":
            self._fill_torch(named)
        self.variables = template
        if weights == "torch":
            self.variables = template | {"params": self._flax_tree(template["params"])}

    def _template(self, inputs: Arrays) -> dict[str, Any]:
        """What the Flax module would initialize, as it is to be filled from torch."""
        args, kwargs = _call(_cast(inputs, np.float32))
        options = {k: v for k, v in (self.flax_options or {}).items() if k != "rngs"}

        def init() -> Any:
            return self.flax.init(jax.random.key(0), *args, **kwargs, **options)

        try:
            return dict(jax.jit(init)())
        except Exception as error:
            raise NotComparableError(f"the Flax side does not run: {first_line(error)}") from None

    def _fill_torch(self, named: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in self.torch.named_parameters():
                parameter.copy_(torch.tensor(np.asarray(named[name], np.float64)))

    def _flax_tree(self, template: Mapping[str, Any]) -> dict[str, Any]:
        theirs = {n: p.numpy(force=True) for n, p in self.torch.named_parameters()}
        names = naming.named_shapes(template)
        return naming.from_named({n: theirs[self.rename(n)] for n in names}, template)

    def sides(
        self, inputs: Arrays, dtype: str, gradients: bool, rounded: str | None = None
    ) -> tuple[FlaxSide, TorchSide]:
        """Both sides in a dtype; `rounded` rounds the numbers to a narrower one beforehand."""
        at = rounded or dtype
        params = jax.tree.map(
            lambda x: jnp.asarray(x, at).astype(dtype), dict(self.variables["params"])
        )
        state = {k: v for k, v in self.variables.items() if k != "params"}
        module = copy.deepcopy(self.torch).to(getattr(torch, at)).to(getattr(torch, dtype))
        arrays = _cast(inputs, at, dtype)
        variables = {"params": params, **state}
        return (
            FlaxSide(self.flax, variables, arrays, self.flax_options, self.rename, gradients),
            TorchSide(module, arrays, self.torch_options, gradients),
        )

    def narrow_values(self, inputs: Arrays, dtype: str, gradients: bool) -> Iterator[Value]:
        """Both sides in a lower precision, each held against float64 on the rounded numbers."""
        flax, torch_side = self.sides(inputs, dtype, gradients)
        truth = self.sides(inputs, "float64", gradients, rounded=dtype)[1].run()
        yield from _values(flax.run(), torch_side.run(), dtype, truth)

    def sizes(self) -> dict[str, float]:
        """Widths that the parameters show: a wrong scale is most often made of one of them."""
        widths = {n for p in self.torch.parameters() for n in p.shape if n > 1}
        return {f"{n}": float(n) for n in sorted(widths)}


def _wrapped(variables: Mapping[str, Any]) -> dict[str, Any]:
    return dict(variables) if "params" in variables else {"params": dict(variables)}


def _arrays(inputs: Inputs) -> Arrays:
    if isinstance(inputs, Mapping):
        return {name: np.asarray(x) for name, x in inputs.items()}
    return [np.asarray(x) for x in inputs]


def _call(inputs: Arrays) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    return ([], inputs) if isinstance(inputs, dict) else (inputs, {})


def _cast(inputs: Arrays, *dtypes: Any) -> Arrays:
    """Float inputs through these dtypes one after the other."""

    def cast(array: np.ndarray) -> np.ndarray:
        for dtype in dtypes if is_float(array) else ():
            array = np.asarray(jnp.asarray(array, dtype))
        return array

    if isinstance(inputs, dict):
        return {name: cast(x) for name, x in inputs.items()}
    return [cast(x) for x in inputs]


def _values(flax: Run, torch_run: Run, dtype: str, truth: Run | None = None) -> Iterator[Value]:
    """Every value and gradient that both sides have, in order of execution."""
    exact = _named(truth) if truth else {}
    theirs = _named(torch_run)
    floors = gradient_floors(gradient_norms(flax))
    for count, (key, ours) in enumerate(_named(flax).items()):
        if key in theirs and is_float(ours) and is_float(theirs[key]):
            floor = floors[key[0]] if key[1] != "value" else 0.0
            yield _value(key, ours, theirs[key], dtype, floor, exact.get(key), count)


def _named(run: Run) -> dict[tuple[str, str], np.ndarray]:
    """(name, kind) -> array: what modules give back and what is tapped, and all gradients."""
    found = {}
    for passed in run.passed.values():
        for i, (name, array) in enumerate(zip(names_of(passed), passed.arrays, strict=True)):
            if passed.point.kind != "input":
                found[name, "value"] = array
            if i < len(passed.grads) and passed.grads[i] is not None:
                found[name, "gradient"] = passed.grads[i]
    return found | {(n, "parameter gradient"): g for n, g in run.param_grads.items()}


def _value(key, flax, torch_value, dtype: str, floor: float, exact, count: int) -> Value:
    same = flax.shape == torch_value.shape
    error = gap(torch_value, flax, floor)
    ends = (gap(flax, exact, floor), gap(torch_value, exact, floor)) if exact is not None else None
    apart = np.abs(flax.astype(np.float64) - torch_value) if same else np.array(np.inf)
    largest = np.maximum(np.abs(flax), np.abs(torch_value)) if same else np.array(1.0)
    return Value(
        name=key[0],
        kind=key[1],
        shapes=(flax.shape, torch_value.shape),
        dtypes=(dtype, dtype),
        error=error,
        max_error=float(apart.max(initial=0.0)),
        ulps=float((apart / _spacing(largest, dtype)).max(initial=0.0)),
        verdict=_verdict(flax, torch_value, error, ends, dtype, count),
        truth_errors=ends,
    )


def _verdict(flax, torch_value, error: float, ends, dtype: str, count: int) -> str:
    if not (np.isfinite(flax).all() and np.isfinite(torch_value).all()):
        return "not finite"
    if flax.size > 1 and np.ptp(flax) == 0 and np.ptp(torch_value) == 0 and error == 0:
        return "constant"
    if ends is None:
        return "equal" if error <= FLOAT64_TOLERANCE else "different"
    # Each value named so far took a few stored results: their walk is the floor.
    allowed = precision_floor(dtype, Roundings(rounded=LIBRARY * (count + 1)))
    ours, theirs = ends
    both = in_line(ours, theirs, allowed) and in_line(theirs, ours, allowed)
    return "equal" if both else "different"


def _spacing(values: np.ndarray, dtype: str) -> np.ndarray:
    """The distance to the next number of the dtype."""
    info = jnp.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(values, float(info.tiny)).astype(np.float64)))
    return float(info.eps) * 2.0**exponent


def _require_signal(run: Run) -> None:
    """Refuse outputs that say nothing: a constant equals a constant whatever is wrong."""
    outputs = run.passed["", "output"].arrays
    if all(out.size > 1 and np.ptp(out) == 0 for out in outputs):
        raise NotComparableError(
            "inputs: the output is constant, so nothing is compared; give other inputs or weights"
        )
