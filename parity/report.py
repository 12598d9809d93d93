"""What a comparison found, and its text for a terminal: the verdict first."""

from dataclasses import asdict, dataclass, field
from typing import Any

from parity.align.narrow import Narrowed
from parity.align.precision import Island
from parity.align.verdict import Compared
from parity.explain.faults import Fault, Faults
from parity.programs.program import Source
from parity.weights.contents import Finding
from parity.weights.weight_map import WeightMap

_MOST_LINES = 30
_MOST_NARROWED = 5
_MOST_NOTES = 4


@dataclass
class Result:
    """What `compare` found. `equal` is the verdict; `str()` is the report for a terminal.

    Args:
        compared: every output and gradient that both sides have.
        islands: of either side, lines that compute in less than float64.
        copying_faults: arrays that hold something else, where both sides brought weights.
        weight_map: how the weights of one side are those of the other.
        sides: what the two are called: "torch" and "jax"; "first" and "second" of one framework.
        narrowed: the values of both sides in a lower precision, where one was asked for.
    """

    dtype: str
    reference: str
    settings: dict[str, str]
    compared: list[Compared]
    faults: Faults
    islands: tuple[list[Island], list[Island]]
    narrowed: list[Narrowed]
    weight_map: WeightMap | None = None
    copying_faults: list[Finding] = field(default_factory=list)
    sides: tuple[str, str] = ("torch", "jax")

    @property
    def equal(self) -> bool:
        return all(found.equal for found in (*self.compared, *self.narrowed))

    def __str__(self) -> str:
        return "\n".join(report_lines(self)[:_MOST_LINES])

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "equal": self.equal,
            "verdict": "equal" if self.equal else "different",
            "dtype": self.dtype,
            "reference": self.reference,
            "settings": self.settings,
            "compared": [asdict(c) | {"equal": c.equal} for c in self.compared],
            "faults": [self._fault(fault) for fault in self.faults.found],
            "narrowed": [asdict(n) | {"equal": n.equal} for n in self.narrowed],
            "weights": [
                {"array": f.entry.jax, "text": f.text, "error": f.error}
                for f in self.copying_faults
            ],
            "complete": self.faults.complete,
            "islands": [asdict(island) for found in self.islands for island in found],
        }

    def _fault(self, fault: Fault) -> dict[str, Any]:
        base, target = self.sides
        places = [(base, p) for p in fault.base_places] + [(target, p) for p in fault.target_places]
        return {
            "stage": fault.stage,
            "places": [
                {"framework": f, "file": p.file, "line": p.line, "code": p.code, "module": p.module}
                for f, p in places
            ],
            "cause": cause(fault, self.reference),
            "fix": fix(fault, self.reference),
            "layers": fault.count,
            "error": fault.error,
        }


def cause(fault: Fault, reference: str) -> str | None:
    """What the candidate does and what the reference does."""
    if fault.edit is None:
        return None
    wrong, right = fault.edit.target, fault.edit.base
    if reference == "jax":
        wrong, right = right, wrong
    return f"{wrong}, where the reference has {right}"


def fix(fault: Fault, reference: str) -> str | None:
    if fault.edit is None:
        return None
    return fault.edit.fix_target if reference == "torch" else fault.edit.fix_base


def report_lines(result: Result) -> list[str]:
    """Verdict, faults, what is computed in a narrower type, the largest errors."""
    lines = [_verdict(result)]
    for number, fault in enumerate(result.faults.found, 1):
        lines += ["", *_fault_lines(number, fault, result)]
    if not all(found.equal for found in result.compared) and not result.faults.found:
        lines += ["", "the differences were not located"]
    return [
        *lines,
        *_weight_lines(result),
        *_narrow_lines(result),
        *_island_lines(result),
        *_largest(result),
    ]


def _verdict(result: Result) -> str:
    counts = {
        kind: sum(c.kind == kind for c in result.compared)
        for kind in ("output", "parameter gradient", "input gradient")
    }
    counted = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in counts.items() if n)
    if result.equal:
        return f"EQUAL in {result.dtype}: {counted}"
    bad = sum(not c.equal for c in result.compared)
    if not bad:
        worse = sum(not n.equal for n in result.narrowed)
        return f"DIFFERENT in {result.dtype}: equal in float64, {worse} operations round more"
    found = len(result.faults.found)
    faults = f"; {found} fault{'s' * (found != 1)}" if found else ""
    return (
        f"DIFFERENT in {result.dtype}, {_reference(result)} being the reference: {bad} results of "
        f"{counted}{faults}"
    )


def _reference(result: Result) -> str:
    return result.sides[("torch", "jax").index(result.reference)]


def _labels(result: Result) -> tuple[str, str]:
    """What the sides are called in the text."""
    base, target = ("JAX" if side == "jax" else side for side in result.sides)
    return base, target


def _fault_lines(number: int, fault: Fault, result: Result) -> list[str]:
    layers = f", in {fault.count} places" if fault.count > 1 else ""
    where = "gradients part" if fault.stage == "backward" else "values part"
    lines = [f"{number}. {where} here (error {fault.error:.1e}{layers})"]
    both = (fault.base_places, fault.target_places)
    for side, places in zip(_labels(result), both, strict=True):
        lines += [f"   {side:<6}{_place(places[0])}"] if places else []
    said = cause(fault, result.reference)
    lines.append(f"   cause {said}" if said else "   cause nothing known explains it")
    advice = fix(fault, result.reference)
    return [*lines, f"   fix   {advice}"] if advice else lines


def _place(source: Source) -> str:
    module = f" in {source.module}" if source.module else ""
    code = source.code if len(source.code) <= 70 else f"{source.code[:67]}..."
    return f"{source}{module}: {code}"


def _weight_lines(result: Result) -> list[str]:
    """Arrays of torch's that nothing of JAX's is made of, and how unusual ones were copied."""
    if result.weight_map is None:
        return []
    wrong = result.copying_faults
    told = [f"weights: {found.entry.jax} is {found.text}" for found in wrong[:_MOST_NOTES]]
    missing = result.weight_map.missing_torch
    told += [f"weights: torch's {name} has no counterpart in JAX" for name in missing[:_MOST_NOTES]]
    noted = [entry for entry in result.weight_map.entries if entry.note]
    told += [f"weights: {entry}" for entry in noted[:_MOST_NOTES]]
    return ["", *told] if told else []


def _narrow_lines(result: Result) -> list[str]:
    """The operations whose rounding one side alone has, the worst first, and dtypes that part."""
    worse = [n for n in result.narrowed if not n.equal]
    worse.sort(key=lambda n: max(n.errors) / n.allowed, reverse=True)
    lines, labels = [], _labels(result)
    for found in worse[:_MOST_NARROWED]:
        side = int(found.errors[1] > found.errors[0])
        lines.append(
            f"{labels[side]} rounds more than {result.dtype} explains at "
            f"{_place(found.sources[side])}: {found.errors[side]:.1e} against "
            f"{found.errors[1 - side]:.1e}"
        )
    parted = {
        (found.sources[0].file, found.sources[0].line): found
        for found in result.narrowed
        if found.dtypes[0] != found.dtypes[1]
    }
    for found in list(parted.values())[:_MOST_NARROWED]:
        lines.append(
            f"{labels[0]} holds {found.dtypes[0]} at {found.sources[0]}, {labels[1]} "
            f"{found.dtypes[1]} at {found.sources[1]}"
        )
    return ["", *lines] if lines else []


def _island_lines(result: Result) -> list[str]:
    lines = []
    for side, found in zip(_labels(result), result.islands, strict=True):
        if found:
            first = found[0]
            more = f" and {len(found) - 1} more lines" if len(found) > 1 else ""
            lines.append(
                f"{side} computes in {first.dtype} at {first.source}{more}: "
                "the sides are compared at that precision"
            )
    return ["", *lines] if lines else []


def _largest(result: Result) -> list[str]:
    lines = ["", f"{'largest errors, norm-wise':<50}{'error':>10}{'allowed':>10}"]
    for kind in ("output", "parameter gradient", "input gradient"):
        found = [c for c in result.compared if c.kind == kind]
        if found:
            worst = max(found, key=lambda c: c.error / c.allowed)
            name = f"{kind}: {worst.name}"[:49]
            lines.append(f"{name:<50}{worst.error:>10.1e}{worst.allowed:>10.1e}")
    return lines
