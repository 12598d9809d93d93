"""Losses of several runs, update by update, and how far they are from those of the first."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub.errors import CheckpointError
from transformer_spec.fields import ConfigError, require
from transformer_training import plots
from transformer_training.checkpoints import store
from transformer_training.checkpoints.durable import SaveError
from transformer_training.runs.directory import CHECKPOINTS


@dataclass(frozen=True)
class Curve:
    """The losses of a run's updates, from 1 on: nats per token, in training."""

    run: str
    losses: np.ndarray


@dataclass(frozen=True)
class Apart:
    """Where two curves are furthest apart.

    Args:
        compared: the updates that both have.
        absolute, relative: the largest difference, and the largest of those divided by the loss of
            the first run.
        at, relative_at: the update of each.
    """

    compared: int
    absolute: float
    at: int
    relative: float
    relative_at: int

    @classmethod
    def of(cls, first: Curve, other: Curve) -> "Apart":
        count = min(len(first.losses), len(other.losses))
        losses = first.losses[:count]
        absolute = np.abs(other.losses[:count] - losses)
        relative = absolute / np.maximum(np.abs(losses), np.finfo(losses.dtype).tiny)
        at, relative_at = int(absolute.argmax()), int(relative.argmax())
        worst = float(absolute[at]), float(relative[relative_at])
        return cls(count, worst[0], at + 1, worst[1], relative_at + 1)


def load(run: str) -> Curve:
    """The losses that a run's newest checkpoint keeps; one that is damaged is named on stderr.

    Raises:
        ConfigError: it is no run, or has no update behind it.
        CheckpointError: none of its checkpoints can be read.
    """
    damaged: CheckpointError | None = None
    for path in reversed(store.listed(Path(run) / CHECKPOINTS)):
        try:
            losses = store.read_history(path)["losses"]
        except CheckpointError as error:
            print(f"parity: {error}; it is not used", file=sys.stderr)
            damaged = error
            continue
        require(len(losses) > 0, "run", run, "a run with an update behind it")
        return Curve(run, losses)
    if damaged:
        raise damaged
    raise ConfigError(
        f"run: {run!r} is not usable; it must be the directory of a run of train.py, with a "
        f"checkpoint in {CHECKPOINTS}/"
    )


def draw(curves: Sequence[Curve], path: Path) -> None:
    """All losses and, below, how far each is from the first at every update.

    Raises:
        SaveError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    first = curves[0].losses
    for i, curve in enumerate(curves):
        updates = np.arange(1, len(curve.losses) + 1)
        above.plot(updates, curve.losses, label=curve.run, color=f"C{i}", lw=1)
        count = min(len(first), len(curve.losses))
        apart = np.abs(curve.losses[:count] - first[:count])
        # A logarithm has no place for what is equal.
        below.plot(updates[:count], np.where(apart > 0, apart, np.nan), color=f"C{i}", lw=1)
        if apart.any():
            below.set_yscale("log")
    above.set(ylabel="loss (nats per token)", yscale="log")
    above.legend()
    below.set(xlabel="update", ylabel=f"difference from {curves[0].run}")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    plots.save(figure, path)


def run(options: argparse.Namespace) -> int:
    """Load, draw and print; differences are measured, not judged."""
    _check_out(options.out)
    try:
        curves = [load(name) for name in options.runs]
        rows = [(curve, Apart.of(curves[0], curve)) for curve in curves]
        if options.out != "none":
            draw(curves, Path(options.out))
    except (CheckpointError, SaveError) as error:
        raise ConfigError(str(error)) from None
    print(json.dumps(_found(rows, options.out), indent=1) if options.json else _shown(rows))
    if options.out != "none" and not options.json:
        print(f"drawn in {options.out}")
    return 0


def _check_out(out: str) -> None:
    usable = out == "none" or out.endswith(".png")
    require(usable, "out", out, "a name that ends in .png, or none")
    if out != "none" and find_spec("matplotlib") is None:
        raise ConfigError(
            "out: matplotlib, which draws, is not installed; run: pip install matplotlib, or give "
            "--out none for the figures alone"
        )


def _found(rows: Sequence[tuple[Curve, Apart]], out: str) -> dict[str, Any]:
    runs = [
        {"run": curve.run, "updates": len(curve.losses), **vars(apart)} for curve, apart in rows
    ]
    return {"runs": runs, "out": None if out == "none" else out}


def _shown(rows: Sequence[tuple[Curve, Apart]]) -> str:
    width = max(len(curve.run) for curve, _ in rows)
    lines = [f"{'run':<{width}}{'updates':>9}{'last loss':>12}  largest difference from the first"]
    for i, (curve, apart) in enumerate(rows):
        line = f"{curve.run:<{width}}{len(curve.losses):>9,}{curve.losses[-1]:>12.6f}  "
        lines.append(line + (_difference(apart) if i else "-"))
    lengths = {len(curve.losses) for curve, _ in rows}
    if len(lengths) > 1:
        lines.append("runs of different length: compared over the updates that both have")
    return "\n".join(lines)


def _difference(apart: Apart) -> str:
    return (
        f"{apart.absolute:.1e} at update {apart.at:,}, relative {apart.relative:.1e} "
        f"at {apart.relative_at:,}, of {apart.compared:,}"
    )
