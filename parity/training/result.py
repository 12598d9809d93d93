"""What a comparison of training steps found, as text and as JSON values."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from parity.explain.causes.evidence import Cause

SHOWN = 30


@dataclass(frozen=True)
class Finding:
    """One difference of two trainings.

    Args:
        what: loss, gradients, clipping, update, learning rate, average, statistics, distribution.
        where: arrays or updates that differ.
        error: norm-wise, the largest.
        causes: what explains it down to rounding; empty where nothing does.
    """

    what: str
    where: str
    error: float
    causes: list[Cause] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"{self.what} ({self.where}): error {self.error:.1e}"
        if not self.causes:
            return f"{head}\n  nothing known explains it"
        lines = [f"  {cause.text}\n    fix: {cause.fix}" for cause in self.causes]
        return "\n".join([head, *lines])


@dataclass(frozen=True)
class TrainingResult:
    """The findings of a comparison, the largest first.

    Args:
        compared: what was compared, with its largest error.
        notes: what could not be compared, and why.
    """

    findings: Sequence[Finding]
    compared: dict[str, float]
    notes: Sequence[str] = ()

    @property
    def equal(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        verdict = "EQUAL" if self.equal else "DIFFERENT"
        errors = ", ".join(f"{what} {error:.1e}" for what, error in self.compared.items())
        lines = [f"{verdict} in float64: {errors}"]
        lines += [line for finding in self.findings for line in str(finding).splitlines()]
        return "\n".join([*lines[:SHOWN], *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"equal": self.equal, "compared": self.compared, "notes": list(self.notes)} | {
            "findings": [asdict(finding) for finding in self.findings]
        }


def shortened(names: Iterable[str], most: int = 4) -> str:
    """`a, b and 7 more`."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
