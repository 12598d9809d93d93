"""Names across a pair: the mapping rule, then the renamings that a user gives."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from parity.observe.settings import NotComparableError

Shapes = Mapping[str, tuple[int, ...]]


def renamer(renames: Mapping[str, str]) -> Callable[[str], str]:
    """The torch name of what the mapping rule calls so; the longest prefix given decides.

    Args:
        renames: names of Flax modules or parameters, as Flax or as the rule writes them (`Dense_0`
            or `Dense.0`, `block.Dense_0.kernel` or `block.Dense.0.weight`), to torch's.
    """
    torch_names = {_by_rule(ours): theirs for ours, theirs in renames.items()}
    longest_first = sorted(torch_names, key=len, reverse=True)

    def rename(name: str) -> str:
        for prefix in longest_first:
            if name == prefix or name.startswith(f"{prefix}."):
                rest = name[len(prefix) :]
                return (torch_names[prefix] + rest).strip(".")
        return name

    return rename


def _by_rule(name: str) -> str:
    parts = [re.sub(r"_(\d+)$", r".\1", part) for part in name.replace("/", ".").split(".")]
    leaf = {"kernel": "weight", "embedding": "weight", "scale": "weight"}.get(parts[-1], parts[-1])
    return ".".join([*parts[:-1], leaf])


def require_matching(flax: Shapes, torch: Shapes) -> None:
    """Refuse parameters without a partner of the same shape, with the nearest candidates.

    Raises:
        NotComparableError: names every fault, and for each what it may belong to.
    """
    faults = [_unmatched(name, flax, torch, "Flax") for name in flax if name not in torch]
    faults += [_unmatched(name, torch, flax, "torch") for name in torch if name not in flax]
    faults += [
        f"{name} is {flax[name]} in Flax and {torch[name]} in torch"
        for name in flax
        if name in torch and flax[name] != torch[name]
    ]
    if faults:
        shown = "; ".join(faults[:6]) + (f"; {len(faults) - 6} more" if len(faults) > 6 else "")
        raise NotComparableError(f"parameters left unmatched: {shown}")


def _unmatched(name: str, one_side: Shapes, other: Shapes, side: str) -> str:
    free = [n for n in other if n not in one_side]
    fitting = [n for n in free if other[n] == one_side[name]]
    near = get_close_matches(name, fitting, 3, 0.0) or get_close_matches(name, free, 3, 0.0)
    hint = ", ".join(f"{n} {other[n]}" for n in near) or "none is left over"
    other_side = "torch" if side == "Flax" else "Flax"
    return f"{side}'s {name} {one_side[name]} has no counterpart (nearest in {other_side}: {hint})"
