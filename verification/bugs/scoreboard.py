"""The seeded bugs on a terminal: the list, and what was found of each."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from parity.observe.settings import NotComparableError
from verification.bugs.pending import PENDING_BUGS
from verification.bugs.rules import RULES
from verification.bugs.score import Score, false_alarms, score_bug
from verification.bugs.seeded import SEEDED_BUGS
from verification.bugs.seeded_bug import SeededBug

Progress = Callable[[str], None]
PAGE = """\
# Porting bugs

Real mistakes, with the public reports of each. Those of the first table are seeded into the torch
twin, one at a time, by `python -m verification bugs`; each has to be caught, located and named.
Those of the second table are pending: they need features that the project does not have yet. This
page is the output of `python -m verification bugs --markdown`.
"""


def choose_bugs(ids: Sequence[str]) -> list[SeededBug]:
    """The seeded bugs of these ids; all where none is given.

    Raises:
        NotComparableError: there is no such bug, or it is pending.
    """
    seeded = {bug.id: bug for bug in SEEDED_BUGS}
    pending = {bug.id: bug for bug in PENDING_BUGS}
    for name in ids:
        if name in pending:
            raise NotComparableError(f"{name} is pending: it needs {pending[name].needs}")
        if name not in seeded:
            raise NotComparableError(f"{name}: no such bug; see --list")
    return [seeded[name] for name in ids] or list(SEEDED_BUGS)


def run_command(options: argparse.Namespace) -> int:
    """Print the list, or the score; 1 where a bug was missed or a correct pair accused."""
    if options.markdown:
        print(page(), end="")
        return 0
    bugs = choose_bugs(options.ids)
    if options.list:
        print("\n".join(_listed(bugs)))
        return 0
    show: Progress = (lambda line: None) if options.json else (lambda line: print(line, flush=True))
    found = summarize(bugs, options.false_alarms, show)
    print(json.dumps(found, indent=1) if options.json else "\n".join(_totals(found)))
    caught, count = found["caught"]
    return 0 if caught == count and not found["false_alarms"][0] else 1


def summarize(bugs: Sequence[SeededBug], pairs: int, show: Progress) -> dict[str, Any]:
    """The score of these bugs, and of `pairs` correct pairs, as JSON values."""
    scores = []
    for bug in bugs:
        scores.append(score_bug(bug))
        show(_row(scores[-1]))
    accused = 0
    for count, (seed, differences) in enumerate(false_alarms(pairs), 1):
        accused += bool(differences)
        for line in differences:
            show(f"FALSE ALARM, seed {seed}: {line}")
        if count % 50 == 0:
            show(f"{count} of {pairs} correct pairs, {accused} false alarms")
    count = len(scores)
    return {
        "caught": [sum(s.caught for s in scores), count],
        "located": [sum(s.located for s in scores), count],
        "named": [sum(s.named for s in scores), count],
        "false_alarms": [accused, pairs],
        "pending": len(PENDING_BUGS),
        "others": [
            {"rule": rule, "caught": sum(not s.accepted[rule] for s in scores)} for rule in RULES
        ],
        "rows": [_to_dict(s) for s in scores],
    }


def _to_dict(score: Score) -> dict[str, Any]:
    return {
        "id": score.bug.id,
        "name": score.bug.name,
        "component": score.bug.component,
        "sources": list(score.bug.sources),
        "caught": score.caught,
        "located": score.located,
        "named": score.named,
        "at": score.bug.at or "the model",
        "cause": "; ".join(cause.text for cause in score.causes[:2]) or score.where,
        "others": [not score.accepted[rule] for rule in RULES],
    }


def _row(score: Score) -> str:
    marks = ("caught", score.caught), ("located", score.located), ("named", score.named)
    shown = " ".join(name if is_so else "-" * len(name) for name, is_so in marks)
    cause = score.causes[0].text if score.causes else score.where
    return f"{score.bug.id:<7} {shown}  {score.bug.name}: {cause}"


def _totals(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{name.replace('_', ' '):<13}{count:>4} of {total}"
        for name in ("caught", "located", "named", "false_alarms")
        for count, total in [found[name]]
    ]
    lines += [f"pending      {found['pending']:>4}", "", "caught by rules in use elsewhere:"]
    return ["", *lines, *[f"  {rule['rule']:<24}{rule['caught']:>4}" for rule in found["others"]]]


def _listed(bugs: Sequence[SeededBug]) -> list[str]:
    seeded = [f"{b.id:<7} {b.component:<14} {b.name}\n{'':<23}{b.how}" for b in bugs]
    pending = [f"{b.id:<7} {b.component:<14} {b.name} (needs {b.needs})" for b in PENDING_BUGS]
    return [*seeded, "", "Pending:", *pending]


def page() -> str:
    """The list as a page of Markdown."""
    seeded = [
        f"| {b.id} | {b.name} | {b.component} | {b.how} | {_links(b.sources)} |"
        for b in SEEDED_BUGS
    ]
    pending = [
        f"| {b.id} | {b.name} | {b.component} | {b.needs} | {_links(b.sources)} |"
        for b in PENDING_BUGS
    ]
    return "\n".join(
        [
            PAGE,
            f"## Seeded: {len(SEEDED_BUGS)}\n",
            "| id | mistake | component | what the twin does | reported |\n|---|---|---|---|---|",
            *seeded,
            f"\n## Pending: {len(PENDING_BUGS)}\n",
            "| id | mistake | component | needs | reported |\n|---|---|---|---|---|",
            *pending,
            "",
        ]
    )


def _links(sources: Sequence[str]) -> str:
    return " ".join(f"[{i}]({source})" for i, source in enumerate(sources, 1)) or "none found"
