"""Give a solved number its name: 0.277 is d_model**-0.5 where d_model is 13."""

from collections.abc import Mapping

_POWERS = (-1.0, -0.5, 0.5, 1.0)


def describe_constant(value: float, sizes: Mapping[str, float], tolerance: float = 1e-9) -> str:
    """`value`, and the expression of sizes that it is, where there is one."""
    shown = f"{value:.6g}"
    if abs(value - 1) <= tolerance:
        return "1"
    for sign, minus in ((1, ""), (-1, "-")):
        for name, size in sizes.items():
            for power in _POWERS:
                if size > 1 and abs(sign * value - size**power) <= tolerance * size**power:
                    base = f"({name})" if " " in name and power != 1 else name
                    return f"{shown} = {minus}{base}" + ("" if power == 1 else f"**{power:g}")
    return shown
