"""Operations, numbers and axes in the field's words."""

from collections.abc import Iterable, Sequence

import numpy as np

from parity.programs.program import Operation

_NAMES = {
    "_softmax": "softmax",
    "_log_softmax": "log softmax",
    "native_layer_norm": "layer norm",
    "native_group_norm": "group norm",
    "native_batch_norm": "batch norm",
    "_native_batch_norm_legit_no_training": "batch norm",
    "mm": "matrix product",
    "bmm": "matrix product",
    "addmm": "linear layer",
    "dot_general": "matrix product",
    "avg_pool2d": "average pooling",
    "max_pool2d_with_indices": "max pooling",
    "conv_general_dilated": "convolution",
    "masked_fill": "masking",
    "select_n": "masking",
    "where": "masking",
    "reduce_sum": "sum",
    "reduce_max": "maximum",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "add": "sum",
}


def stem(operation: Operation) -> str:
    """The name without namespace, overload and the mark of an operation in place."""
    return operation.name.removeprefix("aten.").split(".")[0].rstrip("_")


def spoken(operation: Operation, name: str | None = None) -> str:
    """What an operation, or one of another name, is called."""
    name = stem(operation) if name is None else name
    return _NAMES.get(name, name.strip("_").replace("_", " "))


def number(value: float, sizes: Iterable[int] = ()) -> str:
    """A number, and the power of one size that it is, where it is of no other."""
    shown = f"{value:.6g}"
    if not np.isfinite(value) or value == float(f"{value:.3g}"):
        return shown
    found = {
        f"{minus}{size}**{power:g}" if power != -1 else f"{minus}1/{size}"
        for size in set(sizes)
        for power in (-1.0, -0.5, 0.5)
        for sign, minus in ((1, ""), (-1, "-"))
        if size > 2 and abs(sign * value - size**power) <= 1e-9 * size**power
    }
    return f"{shown} = {found.pop()}" if len(found) == 1 else shown


def axes_text(axes: int | Sequence[int], shape: Sequence[int]) -> str:
    """Axes counted from the end, with how long they are."""
    given = [axes] if isinstance(axes, int) else list(axes)
    counted = [axis - len(shape) if axis >= 0 else axis for axis in given]
    kind = "axis" if len(counted) == 1 else "axes"
    lengths = " x ".join(str(shape[axis]) for axis in counted)
    return f"{kind} {', '.join(map(str, counted))} of {len(shape)} (length {lengths})"
