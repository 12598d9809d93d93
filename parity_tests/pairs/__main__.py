"""A table of what the comparison says of every pair: `python -m parity_tests.pairs [WORD ...]`."""

import sys
import traceback
from collections.abc import Sequence

from parity_tests.pairs.answers import STATUS, ask
from parity_tests.pairs.table import PAIRS, Pair


def row(pair: Pair) -> str:
    """One line: the pair, what was said, whether it is right, placed and named, the time."""
    try:
        answer = ask(pair)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{pair!s:<58} RAISES {error!r:.120} {where.filename}:{where.lineno}"
    right = answer.verdict == pair.verdict
    placed = named = "-"
    said = answer.message.strip()[:150] if answer.verdict == STATUS[2] else ""
    if pair.verdict != "equal":
        placed, named = (
            "yes" if check else "NO" for check in (answer.placed(pair), answer.named(pair))
        )
        said += " | ".join(str(fault["cause"])[:110] for fault in answer.faults[:3])
        said += f" at {sorted(answer.lines(pair))} of {sorted(pair.marked_lines())}"
    elif not right:
        said += " | ".join(f"{f['cause']} {f['error']:.1e}"[:110] for f in answer.faults[:3])
    verdict = answer.verdict if right else answer.verdict.upper()
    return f"{pair!s:<58}{verdict:<18}{placed:<5}{named:<5}{answer.seconds:5.1f}  {said}"


def main(words: Sequence[str]) -> None:
    print(f"{'pair':<58}{'verdict':<18}{'placed':<5}{'named':<5} seconds")
    for pair in PAIRS:
        if all(word in str(pair) for word in words):
            print(row(pair), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
