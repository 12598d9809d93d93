"""Known runs held against both twins, and written anew.

How close: the twins are two implementations on one machine, and where they sum in another order
the last digit of an operation differs. So it does between one machine and another, whose libraries
block their products and reduce their sums in their own way. What becomes of a rounding over a run
is a property of the run, not of who rounds, so the bound is that between the twins: 1e-10 in every
loss and gradient norm.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from flax_transformer import training as flax_training
from parity import settings
from parity.small import without_dropout
from torch_reference import training as torch_training
from transformer_spec import golden
from transformer_spec.fields import require
from transformer_spec.golden import FOLDER, NAMES, Run
from transformer_spec.presets import PRESETS
from transformer_spec.tasks import make_task

TOLERANCE = 1e-10
UPDATES = 200
TRAINERS = {"flax": flax_training.Trainer, "torch": torch_training.Trainer}
VERSIONS = ("jax", "flax", "optax", "torch", "numpy")


def fresh(name: str) -> Run:
    """The run of a preset, before anything of it is known."""
    preset = PRESETS[name]
    data = str(FOLDER / "numbers.txt") if preset.train.task == "language_model" else None
    train = replace(preset.train, steps=UPDATES, epochs=None, dtype="float64", data=data)
    return Run(make_task(without_dropout(preset.model), train).model, train)


def known(name: str) -> Run:
    """A run with its losses, as the Flax twin has them."""
    run = fresh(name)
    found = list(run.replay(TRAINERS["flax"](run.model, run.train)))
    losses, norms = zip(*found, strict=True)
    versions = {part: settings.describe()[part] for part in VERSIONS}
    prints = run.drawn_fingerprints()
    return replace(run, losses=losses, grad_norms=norms, fingerprints=prints, versions=versions)


def differences(run: Run, side: str, updates: int | None = None) -> dict[str, float]:
    """The largest relative difference of a twin's losses, and of its gradient norms."""
    found = run.replay(TRAINERS[side](run.model, run.train), updates)
    apart = {"loss": 0.0, "grad_norm": 0.0}
    for (loss, norm), *expected in zip(found, run.losses, run.grad_norms, strict=False):
        for name, ours, theirs in zip(apart, (loss, norm), expected, strict=True):
            apart[name] = max(apart[name], abs(ours - theirs) / abs(theirs))
    return apart


def write(names: Sequence[str]) -> None:
    """The files of these runs, as this machine and these versions have them."""
    for name in names:
        text = json.dumps(known(name).to_dict(), indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def run(options: argparse.Namespace) -> int:
    """Hold both twins against the known runs; 1 where a loss or a norm is further off."""
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
    table = {n: {side: differences(r, side, updates) for side in TRAINERS} for n, r in runs.items()}
    print(json.dumps(table, indent=1) if options.json else _shown(table, updates))
    worst = max(v for sides in table.values() for apart in sides.values() for v in apart.values())
    return 0 if worst <= TOLERANCE else 1


def _shown(table: dict[str, dict[str, dict[str, float]]], updates: int) -> str:
    return "\n".join(
        f"{name:<9} {side:<6} largest relative difference of {updates} updates: "
        + ", ".join(f"{part} {value:.1e}" for part, value in apart.items())
        for name, sides in table.items()
        for side, apart in sides.items()
    )
