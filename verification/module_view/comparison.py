"""Compare a torch module with a Linen module call by call, tap by tap."""

from collections.abc import Mapping
from typing import Any, Literal

import flax.linen as flax_nn
import numpy as np
from torch import nn

from parity.explain.examine import Reference, examine
from parity.judge.errors import FLOAT64_TOLERANCE
from parity.judge.values import compare_values
from parity.observe import settings
from parity.observe.arrays import is_float
from parity.observe.points import Recording
from parity.observe.settings import NotComparableError
from verification.module_view.pair import Inputs, ModulePair, Weights, input_arrays
from verification.module_view.report import Result

DTYPES = ("float64", "float32", "bfloat16", "float16")


def compare(
    torch_module: nn.Module,
    flax_module: flax_nn.Module,
    variables: Mapping[str, Any] | None = None,
    inputs: Inputs = (),
    *,
    weights: Weights | None = None,
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
        dtype: "float64", or a lower one, in which each side's error against the float64 truth may
            be at most twice the other's plus a floor (`parity.judge.precision`).
        reference: the side that is taken to be right.
        gradients: compare them too.
        torch_options, flax_options: further keyword arguments of the calls: {"train": False}.
        sizes: numbers by name that a wrong constant may be made of, such as {"d_model": 512}.
    Raises:
        NotComparableError: nothing could be compared; the message says what to do.
    """
    if dtype not in DTYPES:
        raise NotComparableError(f"dtype: {dtype!r} is not usable; one of {', '.join(DTYPES)}")
    _require_modules(torch_module, flax_module)
    settings.require_comparable(dtype, torch_module)
    pair = ModulePair(torch_module, flax_module, torch_options, flax_options)
    arrays = input_arrays(inputs)
    pair.share_weights(variables, arrays, weights or ("torch" if variables is None else "flax"))
    flax, torch_side = pair.sides(arrays, "float64", gradients)
    for side in (flax, torch_side):
        settings.require_finite(side.framework, side.parameters())
    right, other = (torch_side, flax) if reference == "torch" else (flax, torch_side)
    numbers = dict(sizes or {}) | pair.sizes()
    found = examine(Reference(right), other, numbers, FLOAT64_TOLERANCE, gradients)
    if found.error or found.recordings is None:
        raise NotComparableError(found.error or "nothing ran")
    runs = found.recordings if reference == "flax" else found.recordings[::-1]
    compared = list(compare_values(runs[0], runs[1], "float64"))
    if dtype != "float64":
        flax_run, torch_run, truth = pair.record_narrow(arrays, dtype, gradients)
        compared = list(compare_values(flax_run, torch_run, dtype, truth))
    _require_signal(runs[0])
    return Result(
        dtype, settings.describe() | settings.mode(torch_module), compared, found, reference
    )


def _require_modules(torch_module: object, flax_module: object) -> None:
    for side, kind, given in (
        ("torch", nn.Module, torch_module),
        ("flax", flax_nn.Module, flax_module),
    ):
        if not isinstance(given, kind):
            found = type(given).__name__
            raise NotComparableError(f"{side}: a {side} module is needed, this is {found}")


def _require_signal(run: Recording) -> None:
    """Refuse outputs that say nothing: a constant equals a constant whatever is wrong."""
    outputs = run.observed["", "output"].arrays
    if not any(is_float(out) for out in outputs):
        raise NotComparableError("the output holds no floating-point values to compare")
    if all(out.size > 1 and np.ptp(out) == 0 for out in outputs):
        raise NotComparableError(
            "inputs: the output is constant, so nothing is compared; give other inputs or weights"
        )
