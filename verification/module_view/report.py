"""What a comparison found, and its text for a terminal: the verdict first."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from parity.explain.examine import Examination
from parity.explain.localize import Fault
from parity.judge.values import Value
from parity.observe.points import display_name

SHOWN_ERRORS = 6
SHOWN_VALUES = 8


@dataclass
class Result:
    """What `compare` found. `equal` is the verdict; `str()` is the report for a terminal."""

    dtype: str
    settings: dict[str, str]
    values: list[Value]
    examination: Examination
    reference: str

    @property
    def equal(self) -> bool:
        bad = [v for v in self.values if v.verdict in ("different", "not finite")]
        return self.examination.equal and not bad

    def __str__(self) -> str:
        return report_text(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        found = self.examination
        return {
            "equal": self.equal,
            "dtype": self.dtype,
            "reference": self.reference,
            "settings": self.settings,
            "values": [asdict(value) for value in self.values],
            "parameters": {name: str(cause) for name, cause in found.parameters.items()},
            "first_fault": found.first_fault and asdict(found.first_fault),
            "local_faults": [
                asdict(f) | {"causes": [asdict(c) for c in found.causes[f.module]]}
                for f in found.local_faults
            ],
        }


def report_text(result: Result) -> str:
    """Verdict, what was found, the largest errors."""
    return "\n".join(
        [_verdict(result), *_faults(result), *_outside_tolerance(result), *_worst(result)]
    )


def heading(settings: Mapping[str, str]) -> str:
    """What the numbers depend on, for the line before them."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _verdict(result: Result) -> str:
    kinds = {kind: sum(v.kind == kind for v in result.values) for kind in ("value", "gradient")}
    parameters = sum(v.kind == "parameter gradient" for v in result.values)
    counted = f"{kinds['value']} values, {kinds['gradient']} gradients, {parameters} of parameters"
    if result.equal:
        return f"EQUAL in {result.dtype}: {counted}"
    return f"DIFFERENT in {result.dtype}, {result.reference} being the reference: {counted}"


def _faults(result: Result) -> list[str]:
    found = result.examination
    lines = []
    for name, cause in found.parameters.items():
        lines.append(f"\nparameter {name}: {cause.text}\n  fix: {cause.fix}")
    if found.first_fault:
        lines.append(f"\nfirst fault, free-running: {found.first_fault}")
    for fault in found.local_faults:
        lines.append(
            f"\n{display_name(fault.module)} differs in its own code, {fault.stage}: {_size(fault)}"
        )
        lines += [f"  cause: {c}\n  fix:   {c.fix}" for c in found.causes[fault.module]]
        if not found.causes[fault.module]:
            lines.append("  cause: nothing known explains it")
    return lines + _growth(result)


def _outside_tolerance(result: Result) -> list[str]:
    """Values that differ in a lower precision alone."""
    bad = [v for v in result.values if v.verdict in ("different", "not finite")]
    if result.dtype == "float64" or not bad or result.examination.local_faults:
        return []
    lines = [
        f"  {v.kind} {v.name}: {v.verdict}, flax {v.truth_errors[0]:.1e}, "
        f"torch {v.truth_errors[1]:.1e} against float64"
        for v in bad[:SHOWN_VALUES]
        if v.truth_errors
    ]
    return [
        f"\nequal in float64; outside the tolerance in {result.dtype}, {len(bad)} values:",
        *lines,
    ]


def _size(fault: Fault) -> str:
    return f"{fault.point}, {fault.detail or f'error {fault.error:.1e}'}"


def _growth(result: Result) -> list[str]:
    """How the error grows from the first fault on."""
    errors = [(name, e) for name, e in result.examination.error_growth if e > 1e-12]
    if not errors:
        return []
    step = max(1, len(errors) // SHOWN_ERRORS)
    chosen = errors[::step][:SHOWN_ERRORS] + ([errors[-1]] if len(errors) > SHOWN_ERRORS else [])
    return ["\nerror from there on:", *[f"  {error:.1e}  {name}" for name, error in chosen]]


def _worst(result: Result) -> list[str]:
    lines = ["", f"{'largest errors':<44}{'norm-wise':>10}{'max':>10}{'ulps':>10}"]
    if result.dtype != "float64":
        lines[1] += f"{'flax':>10}{'torch':>10}  (against float64)"
    for kind in ("value", "gradient", "parameter gradient"):
        values = [v for v in result.values if v.kind == kind]
        if values:
            worst = max(values, key=lambda v: v.error)
            row = f"{f'{kind}: {worst.name}'[:43]:<44}{worst.error:>10.1e}{worst.max_error:>10.1e}"
            row += f"{worst.ulps:>10.1e}"
            ends = worst.truth_errors
            lines.append(row + (f"{ends[0]:>10.1e}{ends[1]:>10.1e}" if ends else ""))
    return lines
