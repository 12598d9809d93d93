"""Family by family, what agrees with transformers and how closely: rows, and their Markdown."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from parity.judge.errors import FLOAT64_TOLERANCE, Difference, differences
from transformer_spec.fields import ConfigError, nearest
from verification.oracles import comparison as comparing
from verification.oracles import round_trip
from verification.oracles.cases import CASES
from verification.oracles.comparison import Comparison

Row = dict[str, Any]

COLUMNS = {
    "family": "family",
    "model": "model",
    "twins": "twins",
    "logits": "logits",
    "hidden": "hidden states",
    "loss": "loss",
    "gradients": "gradients",
    "round_trip": "tensors kept by a round trip",
    "float32": "float32: theirs / ours",
    "left_alone": "their float32 left alone",
    "islands": "their code leaves float64 at",
    "constants": "short constants, and what each costs",
}


def row(comparison: Comparison) -> Row:
    """What one case shows, by the keys of `COLUMNS`; norm-wise errors, the largest of each kind.

    twins: the twins against each other, in all values. logits, hidden, loss, gradients: both twins
    against the oracle in float64. round_trip: tensors bit-equal after export, import and export.
    float32: both sides' outputs against float64. The rest is about their code: what it costs to
    leave its float32 and its constants as they are.
    """
    sides = (comparison.flax, comparison.torch)
    found = [d for side in sides for d in comparison.against_theirs(side)]
    same, stored = round_trip.count_kept_tensors(comparison.oracle.family, comparison.oracle.config)
    narrow = [f for f in comparing.in_float32(comparison.name) if f.name.startswith("output.")]
    return {
        "family": comparison.oracle.family,
        "model": comparison.name,
        "twins": _largest(differences(*sides)),
        "logits": _largest(found, "output.logits", "output.pooled", "output.next_sentence"),
        "hidden": _largest(found, "output.encoder ", "output.decoder "),
        "loss": _largest(found, "output.loss"),
        "gradients": _largest(found, "parameter."),
        "round_trip": (same, stored),
        "float32": (max(f.theirs for f in narrow), max(f.ours for f in narrow)),
        "left_alone": max(comparing.cost_of_float32(comparison).values()),
        "islands": sorted(comparison.oracle.islands),
        "constants": comparing.cost_of_constants(comparison),
    }


def _largest(found: list[Difference], *prefixes: str) -> float:
    return max(d.error for d in found if d.name.startswith(prefixes or ("",)))


def markdown(found: Iterable[Row], columns: Mapping[str, str] = COLUMNS) -> str:
    """The rows as a table; a key that a row lacks is left empty."""
    lines = ["| " + " | ".join(columns.values()) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(_cell(row.get(key, "")) for key in columns) + " |" for row in found]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    match value:
        case float():
            return f"{value:.1e}"
        case tuple():
            return " / ".join(map(_cell, value))
        case list():
            return "<br>".join(map(_cell, value))
        case dict():
            return "<br>".join(f"{name}: {_cell(v)}" for name, v in value.items())
    return str(value)


def run_command(options: argparse.Namespace) -> int:
    """Print the table of the named cases, or of all; 1 where one is off by more than rounding.

    Raises:
        ConfigError: there is no such case.
        NotComparableError: transformers is not installed.
    """
    if unknown := [name for name in options.names if name not in CASES]:
        raise ConfigError(f"oracles: no {unknown[0]!r}; {nearest(unknown[0], CASES)}")
    found = []
    for name in options.names or CASES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found.append(row(Comparison(name)))
    print(json.dumps(found, indent=1) if options.json else markdown(found))
    exact = ("twins", "logits", "hidden", "loss", "gradients")
    off = any(row[kind] > FLOAT64_TOLERANCE for row in found for kind in exact)
    lost = any(same != stored for same, stored in (row["round_trip"] for row in found))
    return int(off or lost)
