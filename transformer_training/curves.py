"""`python -m transformer_training.curves`: the losses of runs, and how far they differ."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from transformer_spec.fields import ConfigError, require
from transformer_spec.files import CheckpointError
from transformer_training import plots
from transformer_training.checkpoints import store
from transformer_training.checkpoints.durable import SaveError
from transformer_training.command_line import Parser, exit_status
from transformer_training.runs.directory import CHECKPOINTS

PROGRAM = "python -m transformer_training.curves"
DESCRIPTION = """\
The losses of runs, update by update, as a table and a picture: how far each differs from the first
run's. Differences are measured, not judged.
"""


@dataclass(frozen=True)
class Curve:
    """The losses of a run's updates, from 1 on: nats per token, in training."""

    run: str
    losses: np.ndarray


@dataclass(frozen=True)
class Difference:
    """Where two curves differ most.

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
    def between(cls, first: Curve, other: Curve) -> "Difference":
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
            print(f"{PROGRAM}: {error}; it is not used", file=sys.stderr)
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
    """Plot all losses and, below, how far each differs from the first at every update.

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
        absolute = np.abs(curve.losses[:count] - first[:count])
        # A logarithmic axis has no place for zero.
        below.plot(updates[:count], np.where(absolute > 0, absolute, np.nan), color=f"C{i}", lw=1)
        if absolute.any():
            below.set_yscale("log")
    above.set(ylabel="loss (nats per token)", yscale="log")
    above.legend()
    below.set(xlabel="update", ylabel=f"difference from {curves[0].run}")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    plots.save(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog=PROGRAM, description=DESCRIPTION)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="directories of runs of train.py")
    picture = "where the picture goes; none: no picture; default: curves.png"
    parser.add_argument("--out", default="curves.png", metavar="FILE.png", help=picture)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    try:
        _check_out(options.out)
        curves = [load(name) for name in options.runs]
        if options.out != "none":
            draw(curves, Path(options.out))
    except (ConfigError, CheckpointError, SaveError) as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    rows = [(curve, Difference.between(curves[0], curve)) for curve in curves]
    print(json.dumps(_json(rows, options.out), indent=1) if options.json else _table(rows))
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


def _json(rows: Sequence[tuple[Curve, Difference]], out: str) -> dict[str, object]:
    runs = [
        {"run": curve.run, "updates": len(curve.losses), **vars(difference)}
        for curve, difference in rows
    ]
    return {"runs": runs, "out": None if out == "none" else out}


def _table(rows: Sequence[tuple[Curve, Difference]]) -> str:
    width = max(len(curve.run) for curve, _ in rows)
    lines = [f"{'run':<{width}}{'updates':>9}{'last loss':>12}  largest difference from the first"]
    for i, (curve, difference) in enumerate(rows):
        line = f"{curve.run:<{width}}{len(curve.losses):>9,}{curve.losses[-1]:>12.6f}  "
        lines.append(line + (_shown(difference) if i else "-"))
    lengths = {len(curve.losses) for curve, _ in rows}
    if len(lengths) > 1:
        lines.append("runs of different length: compared over the updates that both have")
    return "\n".join(lines)


def _shown(d: Difference) -> str:
    return (
        f"{d.absolute:.1e} at update {d.at:,}, relative {d.relative:.1e} "
        f"at {d.relative_at:,}, of {d.compared:,}"
    )


if __name__ == "__main__":
    raise SystemExit(exit_status(main))
