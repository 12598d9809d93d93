"""A hint for a name that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, candidates: Iterable[str]) -> str:
    """`did you mean X?` where a candidate is close, else all of them."""
    known = sorted(candidates)
    if close := get_close_matches(name, known, n=1, cutoff=0.5):
        return f"did you mean {close[0]}?"
    return f"choose from {', '.join(known) or 'none'}"
