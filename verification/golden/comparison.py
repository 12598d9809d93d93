"""Both twins compared with the golden runs; and the golden runs written anew.

How close: `verification.golden` says what each update of a run makes of a rounding, and what
the bound is for that. It holds between the twins as between one machine and another, whose
libraries block their products and reduce their sums in their own way.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from flax_transformer import training as flax_training
from parity.observe import settings
from torch_reference import training as torch_training
from transformer_spec.fields import require
from transformer_spec.presets import PRESETS
from transformer_training.tasks import make_task
from verification import golden
from verification.golden import FOLDER, NAMES, GoldenRun
from verification.twins.small_presets import without_dropout

UPDATES = 200
MOVED = 6
TRAINERS = {"flax": flax_training.Trainer, "torch": torch_training.Trainer}
VERSIONS = ("jax", "flax", "optax", "torch", "numpy")


def fresh(name: str) -> GoldenRun:
    """The run of a preset, before anything of it is known."""
    preset = PRESETS[name]
    data = str(FOLDER / "numbers.txt") if preset.train.task == "language_model" else None
    train = replace(preset.train, steps=UPDATES, epochs=None, dtype="float64", data=data)
    return GoldenRun(make_task(without_dropout(preset.model), train).model, train)


def known(name: str) -> GoldenRun:
    """A run with its losses, as the Flax twin has them."""
    run = fresh(name)
    found = _replayed(run)
    losses, norms = (tuple(column) for column in found.T.tolist())
    differences = [
        _relative_difference(_replayed(run, run.moved_parameters(seed)), found)
        for seed in range(MOVED)
    ]
    roundings = np.maximum.accumulate(np.max(differences, axis=(0, 2)))
    versions = {part: settings.describe()[part] for part in VERSIONS}
    prints = run.drawn_fingerprints()
    return replace(
        run,
        losses=losses,
        grad_norms=norms,
        roundings=tuple(roundings.tolist()),
        fingerprints=prints,
        versions=versions,
    )


def _replayed(run: GoldenRun, start: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """The losses and gradient norms [updates, 2] of the Flax twin."""
    return np.array(list(run.replay(TRAINERS["flax"](run.model, run.train), None, start)))


def _relative_difference(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.abs(ours - theirs) / np.abs(theirs)


@dataclass(frozen=True)
class Difference:
    """How far a twin's run is from the known one.

    Args:
        loss, grad_norm: the largest relative difference of any update.
        of_bound: the largest share of an update's bound; the runs are the same up to 1.
        at: the update of that share.
    """

    loss: float
    grad_norm: float
    of_bound: float
    at: int


def difference(run: GoldenRun, side: str, updates: int = UPDATES) -> Difference:
    """That of the twin, flax or torch."""
    found = np.array(list(run.replay(TRAINERS[side](run.model, run.train), updates)))
    known = np.stack([run.losses, run.grad_norms], axis=1)[:updates]
    difference = _relative_difference(found, known)
    shares = difference.max(axis=1) / np.array(run.bounds[:updates])
    at = int(shares.argmax())
    loss, norm = difference.max(axis=0).tolist()
    return Difference(loss, norm, float(shares[at]), at + 1)


def write(names: Sequence[str]) -> None:
    """The files of these runs, as this machine and these versions have them."""
    for name in names:
        text = json.dumps(known(name).to_dict(), indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def run_command(options: argparse.Namespace) -> int:
    """Compare both twins with the golden runs; 1 where a loss or a norm is beyond its bound."""
    names = options.names or NAMES
    for name in names:
        golden.check_name(name)
    if options.write:
        write(names)
        print("written: " + ", ".join(str(FOLDER / f"{name}.json") for name in names))
        return 0
    updates = UPDATES if options.updates is None else options.updates
    require(1 <= updates <= UPDATES, "updates", updates, f"in 1..{UPDATES}")
    runs = {name: golden.load(name) for name in names}
    table = {n: {side: difference(r, side, updates) for side in TRAINERS} for n, r in runs.items()}
    print(_json(table) if options.json else _shown(table, updates))
    shares = [found.of_bound for sides in table.values() for found in sides.values()]
    return 0 if np.max(shares) <= 1 else 1


def _json(table: dict[str, dict[str, Difference]]) -> str:
    plain = {name: {side: asdict(d) for side, d in sides.items()} for name, sides in table.items()}
    return json.dumps(plain, indent=1)


def _shown(table: dict[str, dict[str, Difference]], updates: int) -> str:
    return "\n".join(
        f"{name:<9} {side:<6} largest relative difference of {updates} updates: "
        f"loss {d.loss:.1e}, grad_norm {d.grad_norm:.1e}; "
        f"{d.of_bound:.2g} of the bound (update {d.at})"
        for name, sides in table.items()
        for side, d in sides.items()
    )
