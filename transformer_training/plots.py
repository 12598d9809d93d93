"""The loss curve of a run as a picture, where matplotlib is installed (the `plots` extra)."""

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformer_training.checkpoints.durable import replace, saving


def plot_losses(records: list[dict[str, Any]], path: Path) -> bool:
    """Draw training and held-out loss over updates; False where there is no matplotlib.

    Raises:
        SaveError: the picture cannot be written.
    """
    if find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for key, label in (("loss", "training"), ("eval_loss", "held out, no dropout")):
        points = [(r["step"], r[key]) for r in records if key in r]
        axes.plot(*zip(*points, strict=True), label=label)
    axes.set(xlabel="update", ylabel="loss (nats per token)", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)
    return True


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG, whole.

    Raises:
        SaveError: it cannot be written.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    with saving(path):
        replace(path, picture.getvalue())
