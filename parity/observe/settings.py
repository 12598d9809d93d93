"""What has to be the same on both sides before their numbers can be compared."""

from importlib.metadata import version
from importlib.util import find_spec

import jax
import numpy as np
import torch
from torch import nn


class NotComparableError(Exception):
    """Nothing was compared; the message says what is in the way, and the line that fixes it."""


def describe() -> dict[str, str]:
    """Versions, devices and precision, as they are now."""
    matmul = jax.config.jax_default_matmul_precision or "default"  # pyright: ignore
    return {
        "jax": jax.__version__,
        "flax": version("flax"),
        "optax": version("optax") if find_spec("optax") else "not installed",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "jax device": str(jax.devices()[0]),
        "torch device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "x64": "on" if jax.config.jax_enable_x64 else "off",  # pyright: ignore
        "matmul precision": f"jax {matmul}, torch {torch.get_float32_matmul_precision()}",
        "TF32": "on" if torch.backends.cuda.matmul.allow_tf32 else "off",
    }


def mode(module: nn.Module | None) -> dict[str, str]:
    """Whether a torch module is training; Linen drops only where its call is given a key."""
    if module is None:
        return {}
    return {"torch module": "training" if module.training else "evaluation"}


def make_comparable(platform: str | None = None) -> None:
    """float64 in jax, the highest matmul precision on both sides, TF32 off.

    Args:
        platform: cpu, gpu or tpu; None leaves jax what it finds.
    """
    if platform:
        jax.config.update("jax_platforms", "cuda" if platform == "gpu" else platform)
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def require_comparable(dtype: str, module: nn.Module | None) -> None:
    """Refuse a session or a module whose numbers would differ for reasons of their own.

    Raises:
        NotComparableError: with the line that puts it right.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore
        _refuse("jax rounds float64 to float32", 'jax.config.update("jax_enable_x64", True)')
    on_cpu = jax.default_backend() == "cpu"
    precision = jax.config.jax_default_matmul_precision  # pyright: ignore
    if not on_cpu and dtype in ("float32", "float64") and precision not in ("highest", "float32"):
        line = 'jax.config.update("jax_default_matmul_precision", "highest")'
        _refuse(f"jax multiplies matrices at precision {precision or 'default'}", line)
    if torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32:
        _refuse("torch multiplies in TF32", "torch.backends.cuda.matmul.allow_tf32 = False")
    modules = () if module is None else module.named_modules()
    active = [n for n, m in modules if m.training and _drops(m)]
    if active:
        _refuse(f"torch's {active[0] or 'module'} drops values: it is training", "module.eval()")


def _drops(module: nn.Module) -> bool:
    rate = getattr(module, "p", getattr(module, "rate", 0.0))
    return "dropout" in type(module).__name__.lower() and isinstance(rate, float) and rate > 0


def require_finite(side: str, parameters: dict[str, np.ndarray]) -> None:
    """Refuse parameters that hold NaN or infinities."""
    for name, value in parameters.items():
        if not np.isfinite(np.asarray(value, np.float64)).all():
            raise NotComparableError(f"{side}: {name} holds NaN or infinities")


def _refuse(fault: str, line: str) -> None:
    raise NotComparableError(f"{fault}; run: {line}")
