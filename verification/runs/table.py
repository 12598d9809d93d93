"""Whole runs in a table: float64 twin to twin, float32 and bfloat16 against it."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from transformer_spec.fields import require
from transformer_spec.presets import get
from verification.low_precision import ErrorPair
from verification.runs.low_precision import Drift, measure_drift
from verification.runs.recorded_runs import (
    SIDES,
    TOLERANCE,
    Agreement,
    compare_runs,
    initial_parameters,
    record_run,
    record_run_with_decisions,
)
from verification.runs.setups import FAMILIES, make_setup

NARROW = ("float32", "bfloat16")
WINDOW = 100


@dataclass(frozen=True)
class Entry:
    """One set-up's runs."""

    name: str
    accumulation: int
    agreement: Agreement
    drifts: dict[str, Drift]

    @property
    def within_tolerance(self) -> bool:
        differ = self.agreement.worst > TOLERANCE or self.agreement.changed_choices > 0
        return not differ and not any(d.beyond_tolerance() for d in self.drifts.values())


def measure_runs(name: str, accumulation: int, updates: int) -> Entry:
    """Both twins in three dtypes, from the same weights."""
    setup = make_setup(name, updates, accumulation)
    start, marks = initial_parameters(setup), marks_of(updates)
    ours, truth = (record_run(setup, side, start, updates, marks, "float64") for side in SIDES)
    drifts = {}
    for dtype in NARROW:
        flax, torch = (record_run_with_decisions(truth, side, dtype) for side in SIDES)
        drifts[dtype] = measure_drift(truth, flax, torch, dtype, min(WINDOW, updates))
    return Entry(name, accumulation, compare_runs(ours, truth), drifts)


def marks_of(updates: int) -> list[int]:
    """After which updates states are compared: 1, 10, 100 and so on, and the last."""
    return sorted({10**n for n in range(len(str(updates)))} | {updates})


def run_command(options: argparse.Namespace) -> int:
    """Print the table row by row; 1 where a run is out of line."""
    require(options.updates >= 4, "updates", options.updates, "at least 4")
    names = options.names or FAMILIES
    for name in names:
        get(name)
    entries = []
    for name in names:
        for accumulation in options.accumulation:
            entries.append(measure_runs(name, accumulation, options.updates))
            if not options.json:
                print("\n".join(lines(entries[-1])), flush=True)
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
    return 0 if all(entry.within_tolerance for entry in entries) else 1


def lines(entry: Entry) -> Iterator[str]:
    """What a person reads of one set-up."""
    a = entry.agreement
    verdict = "WITHIN TOLERANCE" if entry.within_tolerance else "BEYOND TOLERANCE"
    yield f"{entry.name}, {entry.accumulation} to an update: {verdict}"
    kinds = ("loss", "grad_norm", "moved", "first_moment", "second_moment")
    shown = ", ".join(f"{kind} {getattr(a, kind):.1e}" for kind in kinds)
    lead = "" if a.lead is None else f", closest expert {a.lead:.1e} of what could turn it"
    yield f"  float64   {shown}{lead}"
    yield (
        f"            loss {a.losses[0]:.3f} -> {a.losses[1]:.3f}, clipped at {a.clipped} of "
        f"{a.updates}, left out: {', '.join(a.left_out) or 'nothing'}"
    )
    for dtype, found in entry.drifts.items():
        yield f"  {dtype:<9} loss       {' '.join(map(_cell, found.losses))}"
        yield f"            parameters {' '.join(map(_cell, found.parameters))}"


def _cell(row: ErrorPair) -> str:
    return f"{row.flax:.1e}/{row.torch:.1e}{'' if row.within_tolerance else '!'}"
