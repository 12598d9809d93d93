"""A stage of training that differs, and why."""

from dataclasses import dataclass, field

from parity.explain.causes.evidence import Cause
from parity.observe.points import display_name


@dataclass(frozen=True)
class Finding:
    """One difference outside of the model's modules.

    Args:
        at: the stage, such as optimizer.clip, and where in it.
        detail: what differs.
        error: by how much; None where it is no matter of degree.
        causes: what explains it down to rounding; empty where nothing does.
    """

    at: str
    detail: str
    error: float | None
    causes: list[Cause] = field(default_factory=list)

    def __str__(self) -> str:
        size = "" if self.error is None else f" (error {self.error:.1e})"
        return f"{display_name(self.at)}: {self.detail}{size}"
