"""The planted bugs on a terminal: the list, and what was found of each."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from parity.observe.settings import NotComparableError
from verification.bugs.planted import PLANTS, WAITING, Plant
from verification.bugs.rules import RULES
from verification.bugs.score import Score, false_alarms, score

Progress = Callable[[str], None]
PAGE = """\
# Porting bugs

Real mistakes, with the public reports of each. The first table is planted into the torch twin by
`python -m verification bugs`, one at a time; it has to be caught, located and named. The second waits
for features that the project does not have yet. This page: `python -m verification bugs --markdown`.
"""


def chosen(ids: Sequence[str]) -> list[Plant]:
    """The plants of these ids; all where none is given.

    Raises:
        NotComparableError: there is no such bug, or its feature is still to come.
    """
    known = {plant.id: plant for plant in PLANTS}
    waiting = {entry.id: entry for entry in WAITING}
    for name in ids:
        if name in waiting:
            raise NotComparableError(f"{name} waits for {waiting[name].waits_for}")
        if name not in known:
            raise NotComparableError(f"{name}: no such bug; see --list")
    return [known[name] for name in ids] or list(PLANTS)


def run(ids: Sequence[str], listed: bool, alarms: int, as_json: bool) -> int:
    """Print the list, or the score; 1 where a bug was missed or a correct pair accused."""
    plants = chosen(ids)
    if listed:
        print("\n".join(_listed(plants)))
        return 0
    show: Progress = (lambda line: None) if as_json else (lambda line: print(line, flush=True))
    found = summary(plants, alarms, show)
    print(json.dumps(found, indent=1) if as_json else "\n".join(_totals(found)))
    caught, of = found["caught"]
    return 0 if caught == of and not found["false_alarms"][0] else 1


def summary(plants: Sequence[Plant], alarms: int, show: Progress) -> dict[str, Any]:
    """The score of these plants, and of `alarms` correct pairs, as JSON values."""
    scores = []
    for plant in plants:
        scores.append(score(plant))
        show(_row(scores[-1]))
    accused = 0
    for count, (seed, said) in enumerate(false_alarms(alarms), 1):
        accused += bool(said)
        for line in said:
            show(f"FALSE ALARM, seed {seed}: {line}")
        if count % 50 == 0:
            show(f"{count} of {alarms} correct pairs, {accused} false alarms")
    count = len(scores)
    return {
        "caught": [sum(s.caught for s in scores), count],
        "located": [sum(s.located for s in scores), count],
        "diagnosed": [sum(s.named for s in scores), count],
        "false_alarms": [accused, alarms],
        "waiting": len(WAITING),
        "others": [
            {"rule": rule, "caught": sum(not s.accepted[rule] for s in scores)} for rule in RULES
        ],
        "rows": [_dictionary(s) for s in scores],
    }


def _dictionary(found: Score) -> dict[str, Any]:
    return {
        "id": found.plant.id,
        "name": found.plant.name,
        "component": found.plant.component,
        "sources": list(found.plant.sources),
        "caught": found.caught,
        "located": found.located,
        "diagnosed": found.named,
        "at": found.plant.at or "the model",
        "cause": "; ".join(cause.text for cause in found.causes[:2]) or found.where,
        "others": [not found.accepted[rule] for rule in RULES],
    }


def _row(found: Score) -> str:
    marks = ("caught", found.caught), ("located", found.located), ("named", found.named)
    shown = " ".join(name if is_so else "-" * len(name) for name, is_so in marks)
    cause = found.causes[0].text if found.causes else found.where
    return f"{found.plant.id:<7} {shown}  {found.plant.name}: {cause}"


def _totals(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{name.replace('_', ' '):<13}{count:>4} of {of}"
        for name in ("caught", "located", "diagnosed", "false_alarms")
        for count, of in [found[name]]
    ]
    lines += [f"waiting for features to come: {found['waiting']}", "", "caught by rules in use:"]
    return ["", *lines, *[f"  {rule['rule']:<24}{rule['caught']:>4}" for rule in found["others"]]]


def _listed(plants: Sequence[Plant]) -> list[str]:
    rows = [f"{p.id:<7} {p.component:<14} {p.name}\n{'':<23}{p.how}" for p in plants]
    waiting = [f"{w.id:<7} {w.component:<14} {w.name} (waits for {w.waits_for})" for w in WAITING]
    return [*rows, "", "Waiting:", *waiting]


def page() -> str:
    """The list as a page of Markdown."""
    rows = [
        f"| {p.id} | {p.name} | {p.component} | {p.how} | {_links(p.sources)} |" for p in PLANTS
    ]
    waiting = [
        f"| {w.id} | {w.name} | {w.component} | {w.waits_for} | {_links(w.sources)} |"
        for w in WAITING
    ]
    return "\n".join(
        [
            PAGE,
            f"## Planted: {len(PLANTS)}\n",
            "| id | mistake | component | what the twin does | reported |\n|---|---|---|---|---|",
            *rows,
            f"\n## Waiting: {len(WAITING)}\n",
            "| id | mistake | component | waits for | reported |\n|---|---|---|---|---|",
            *waiting,
            "",
        ]
    )


def _links(sources: Sequence[str]) -> str:
    return " ".join(f"[{i}]({source})" for i, source in enumerate(sources, 1)) or "none found"
