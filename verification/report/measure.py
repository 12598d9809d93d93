"""All figures of one report, from one run."""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parity.judge import precision
from parity.judge.errors import FLOAT64_TOLERANCE
from parity.judge.values import Value
from parity.observe import settings
from parity.observe.settings import NotComparableError
from transformer_spec import parameters
from transformer_spec.presets import PRESETS
from verification.bugs import scoreboard
from verification.bugs.seeded import SEEDED_BUGS
from verification.check import check_preset
from verification.low_precision import measure_errors
from verification.module_view.report import Result
from verification.report import pages
from verification.twins.components import COMPONENTS

# Presets that are checked at full size; larger ones: `python -m verification check NAME --grads`.
LARGEST = 20_000_000
TAPS = ("q", "k", "q_rotated", "k_rotated", "v", "scores", "weights", "context")
COLUMNS = (*TAPS, "attn", "cross_attn", "ffn", "block")
KINDS = {
    "embed": "token embedding",
    "pos_embed": "positions",
    "rotary": "positions",
    "rel_bias": "positions",
    "attn": "attention",
    "cross_attn": "cross-attention",
    "ffn": "feed-forward",
    "type_embed": "token types",
    "embed_norm": "norms",
    "attn_norm": "norms",
    "attn_out_norm": "norms",
    "cross_norm": "norms",
    "cross_out_norm": "norms",
    "ffn_norm": "norms",
    "ffn_out_norm": "norms",
    "final_norm": "norms",
    "lm_norm": "norms",
    "lm_transform": "output head",
    "lm_head": "output head",
}
Row = dict[str, Any]


def run_command(options: argparse.Namespace) -> int:
    """Measure, then write what was asked for; 1 where something is not equal."""
    if not (options.html or options.markdown or options.json):
        raise NotComparableError("report: give --html FILE, --markdown FILE or --json")
    for path in filter(None, (options.html, options.markdown)):
        if not Path(path).resolve().parent.is_dir():
            raise NotComparableError(f"{path}: no such folder")
    found = measure(0 if options.no_bugs else options.false_alarms, not options.no_bugs)
    if options.html:
        Path(options.html).write_text(pages.html(found), encoding="utf-8")
    if options.markdown:
        Path(options.markdown).write_text(pages.markdown(found), encoding="utf-8")
    print(json.dumps(found) if options.json else found["verdict"]["text"])
    return 0 if found["verdict"]["equal"] else 1


def measure(false_alarms: int, with_bugs: bool = True) -> Row:
    """Presets up to LARGEST, every component in every dtype, the seeded bugs, for `report`."""
    start = time.monotonic()
    found: Row = {"title": "Parity report", "components": [], "heat": []}
    comparisons: list[bool] = []
    for name in _presets():
        _tell(f"{name}: float64")
        result = check_preset(name, gradients=True)
        comparisons.append(result.equal)
        found["components"] += _components(name, result)
        found["heat"].append(_heat(name, result))
    _tell(f"{len(COMPONENTS)} components in {', '.join(precision.DTYPES)}")
    found["precision"] = list(_precision())
    comparisons += [row["equal"] for row in found["precision"]]
    if with_bugs:
        _tell(f"{len(SEEDED_BUGS)} seeded bugs, {false_alarms} correct pairs")
        found["bugs"] = scoreboard.summarize(SEEDED_BUGS, false_alarms, _tell)
    return found | {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": round(time.monotonic() - start, 1),
        "command": "python -m verification " + " ".join(sys.argv[1:]),
        "verdict": _verdict(comparisons, found.get("bugs")),
        "environment": [list(item) for item in settings.describe().items()],
    }


def _presets() -> list[str]:
    return [n for n, preset in PRESETS.items() if parameters.count(preset.model) <= LARGEST]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _verdict(comparisons: list[bool], bugs: Row | None) -> Row:
    text = f"{sum(comparisons)} of {len(comparisons)} comparisons equal"
    equal = all(comparisons)
    if bugs:
        (caught, of), (accused, pairs) = bugs["caught"], bugs["false_alarms"]
        text += f"; {caught} of {of} seeded bugs caught, {accused} of {pairs} correct pairs accused"
        equal &= caught == of and not accused
    return {"equal": equal, "text": text}


def _components(preset: str, result: Result) -> list[Row]:
    """The largest float64 errors of every kind of module of a preset."""
    largest: dict[str, dict[str, float]] = defaultdict(dict)
    for value in result.values:
        kind = _component(value)
        column = {"value": "output", "gradient": "input", "parameter gradient": "parameter"}
        errors = largest[kind]
        errors[column[value.kind]] = max(errors.get(column[value.kind], 0.0), value.error)
    return [
        {"name": f"{preset}: {kind}", "bound": FLOAT64_TOLERANCE, "equal": _bounded(errors)}
        | {column: errors.get(column) for column in ("output", "parameter", "input")}
        for kind, errors in largest.items()
    ]


def _bounded(errors: dict[str, float]) -> bool:
    return all(error <= FLOAT64_TOLERANCE for error in errors.values())


def _component(value: Value) -> str:
    name = value.name.removeprefix("output of ").removeprefix("input of ").split(" ")[0]
    parts = name.split("@")[0].split(".")
    known = [KINDS[part] for part in parts if part in KINDS]
    return known[-1] if known else "blocks, stacks, the model"


def _precision() -> Iterator[Row]:
    """Each framework's worst error against float64, of every component in every dtype."""
    for name, component in COMPONENTS.items():
        for dtype in precision.DTYPES:
            rows = measure_errors(component, dtype)
            row: Row = {
                "component": name,
                "dtype": dtype,
                "equal": all(r.within_tolerance for r in rows),
            }
            outputs = [r for r in rows if r.name.startswith("output.")]
            gradients = [r for r in rows if not r.name.startswith("output.")]
            for column, group in (("output", outputs), ("gradient", gradients)):
                row[f"flax_{column}"] = max(r.flax for r in group)
                row[f"torch_{column}"] = max(r.torch for r in group)
                row[f"floor_{column}"] = max(r.floor for r in group)
            yield row


def _heat(preset: str, result: Result) -> Row:
    """The error of every layer by tap and module."""
    cells: dict[str, dict[str, float]] = defaultdict(dict)
    for value in result.values:
        place = _cell(value.name) if value.kind == "value" else None
        if place:
            row, column = place
            cells[row][column] = max(cells[row].get(column, 0.0), value.error)
    columns = [c for c in COLUMNS if any(c in row for row in cells.values())]
    values = [[row.get(column) for column in columns] for row in cells.values()]
    return {"model": preset, "columns": columns, "rows": list(cells), "values": values}


def _cell(name: str) -> tuple[str, str] | None:
    """(layer, column) of a value inside a block."""
    parts = name.removeprefix("output of ").split(" ")[0].split(".")
    if "layers" not in parts:
        return None
    end = parts.index("layers") + 2
    layer, rest = ".".join(parts[:end]), parts[end:]
    column = rest[-1] if rest else "block"
    inside = len(rest) < 2 or (rest[0] in ("attn", "cross_attn") and column in TAPS)
    return (layer, column) if inside and column in COLUMNS else None
