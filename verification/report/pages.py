"""A run's results as a page of HTML, and as Markdown for a pull request.

A run is a plain dict, as JSON holds it. A section that it lacks, or that is empty, is left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import inf, isfinite, isnan, log10
from typing import Any

from parity.judge.errors import FLOAT64_TOLERANCE
from verification.report.html import BAD, COLD, GOOD, HOT, Cell, Report, Row, Section, Table, page

DASH = "\N{EN DASH}"
ERRORS = {"output": "output", "parameter": "parameter gradient", "input": "input gradient"}
SIDES = {"flax": "Flax", "torch": "PyTorch", "floor": "floor"}
OUTCOMES = ("caught", "located", "named")
# Signs that Markdown reads, but for an underscore inside a word.
MARKDOWN_SIGNS = re.compile(r"[\\`*|~\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def html(run: Mapping[str, Any]) -> str:
    """One page that needs nothing but itself."""
    return page(_report(run))


def markdown(run: Mapping[str, Any]) -> str:
    """The verdict, a line for each section, and the tables folded; those that failed are open."""
    report = _report(run)
    verdict = "" if report.equal is None else f"{report.word}: {report.sentence}"
    facts = " · ".join(part for part in (report.title if verdict else "", report.facts) if part)
    code = f"<code>{_plain(report.command)}</code>" if report.command else ""
    bullets = (
        f"- {BAD + ' ' if s.failed else ''}**{s.title}**: {_plain(s.summary)}"
        for s in report.sections
    )
    parts = [f"## {_plain(verdict or report.title)}", _plain(facts), code, "\n".join(bullets)]
    return "\n\n".join(filter(None, [*parts, *map(_folded, report.sections)])) + "\n"


def _folded(section: Section) -> str:
    head = f"<details{' open' if section.failed else ''}><summary>{section.title}</summary>"
    tables = [f"{_plain(t.caption)}\n\n{_markdown_table(t)}" for t in section.tables]
    return "\n\n".join([head, *map(_plain, section.about), *tables, "</details>"])


def _markdown_table(table: Table) -> str:
    def line(texts: Iterable[str]) -> str:
        return f"| {' | '.join(texts)} |"

    def text(row: Row, i: int, cell: Cell) -> str:
        strong = "**" if row.failed and i == 0 else ""
        note = f"<br>{_plain(cell.note)}" if cell.note else ""
        return f"{strong}{_plain(cell.text)}{strong}{note}"

    rows = (line(text(row, i, c) for i, c in enumerate(row.cells)) for row in table.rows)
    rule = "|" + "---|" * len(table.columns)
    return "\n".join([line(map(_plain, table.columns)), rule, *rows])


def _plain(text: str) -> str:
    """The text on one line, with nothing in it that Markdown or HTML would read."""
    one_line = escape(" ".join(text.split()), quote=False)
    return MARKDOWN_SIGNS.sub(lambda sign: f"\\{sign[0]}", one_line)


def number(value: float | None) -> str:
    """1.9e-16; a dash for what was not measured."""
    return DASH if value is None else "0" if value == 0 else f"{value:.1e}"


def percent(part: int, whole: int) -> str:
    """One decimal, cut off: nothing but all is 100 %, and nothing but none is 0 %."""
    if part in (0, whole) or not whole:
        return f"{100 * part // whole} %" if whole else DASH
    return f"{max(1000 * part // whole, 1) / 10:.1f} %"


def heat_level(value: float) -> float:
    """The value's place, in log10, between the ends of the scale of colours: 0 to 1."""
    if not isfinite(value):
        return 1.0
    level = (log10(value) - COLD) / (HOT - COLD) if value > 0 else 0.0
    return min(max(level, 0.0), 1.0)


def _report(run: Mapping[str, Any]) -> Report:
    verdict, seconds = run.get("verdict") or {}, run.get("seconds")
    minutes, rest = divmod(round(seconds or 0), 60)
    took = "" if seconds is None else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
    facts = " · ".join(part for part in (run.get("when"), took) if part)
    sections = [build(run[key]) for key, build in SECTIONS.items() if run.get(key)]
    title = run.get("title") or "Parity report"
    text, command = verdict.get("text", ""), run.get("command") or ""
    return Report(title, verdict.get("equal"), text, facts, command, sections)


def _error(value: float | None, bound: float, kind: str) -> Cell:
    """A number, marked by a sign where it is not within the bound."""
    if value is None:
        return Cell(DASH, "number quiet")
    over = not value <= bound
    text = f"{BAD} {number(value)}" if over else number(value)
    return Cell(text, f"{kind} over" if over else kind, level=heat_level(value))


def _size(error: tuple) -> float:
    """What errors are ordered by: their first item; what is not a number is largest."""
    return -1.0 if error[0] is None else inf if isnan(error[0]) else error[0]


def _mark(good: bool | None, right: str = "", wrong: str = "") -> Cell:
    if good is None:
        return Cell(DASH, "mark quiet")
    sign, word, kind = (GOOD, right, "mark good") if good else (BAD, wrong, "mark bad")
    return Cell(f"{sign} {word}".strip(), kind)


def _components(components: Sequence[Mapping[str, Any]]) -> Section:
    bounds = sorted({c["bound"] for c in components})
    one = len(bounds) == 1

    def row(c: Mapping[str, Any]) -> Row:
        floored = ", ".join(c.get("floored") or ())
        first = Cell(c["name"], note=f"against a floor: {floored}" if floored else "")
        errors = [_error(c.get(kind), c["bound"], "number") for kind in ERRORS]
        own = [] if one else [Cell(number(c["bound"]), "number quiet")]
        return Row([first, _mark(c["equal"], "equal", "differs"), *errors, *own], not c["equal"])

    errors = [(c.get(kind), text, c["name"]) for c in components for kind, text in ERRORS.items()]
    value, kind, name = max(errors, key=_size)
    equal = sum(bool(c["equal"]) for c in components)
    summary = f"{equal} of {len(components)} equal; largest error {number(value)} ({name}, {kind})"
    about = (
        "The largest norm-wise relative difference between the Flax and the PyTorch computation, "
        "in outputs and in gradients. Where a value's own norm is rounding noise, the scale of its "
        "computation takes its place: a floor."
    )
    bound = f"; bound {number(bounds[0])}" if one else ""
    columns = ["component", "verdict", *ERRORS.values(), *([] if one else ["bound"])]
    table = Table(f"Largest errors{bound}", columns, [row(c) for c in components])
    failed = equal < len(components)
    return Section("components", "Measured errors", summary, [about], [table], failed)


def _precision(rows: Sequence[Mapping[str, Any]]) -> Section:
    kinds = [(side, of) for of in ("output", "gradient") for side in SIDES]

    def row(r: Mapping[str, Any]) -> Row:
        quiet = {"floor": "number quiet"}
        cells = [
            Cell(number(r.get(f"{side}_{of}")), quiet.get(side, "number")) for side, of in kinds
        ]
        verdict = _mark(r["equal"], "within tolerance", "beyond tolerance")
        return Row([Cell(r["component"]), Cell(r["dtype"]), verdict, *cells], not r["equal"])

    order = list(dict.fromkeys(r["component"] for r in rows))
    ordered = sorted(rows, key=lambda r: order.index(r["component"]))
    good = sum(bool(r["equal"]) for r in rows)
    about = (
        "Each framework's error against the same computation in float64. It is within tolerance if "
        "it is at most twice the other framework's error, plus the floor that rounding sets."
    )
    columns = ["component", "dtype", "verdict", *(f"{of}: {SIDES[side]}" for side, of in kinds)]
    table = Table("Errors beside their floors", columns, [row(r) for r in ordered], "grouped")
    summary, failed = f"{good} of {len(rows)} within tolerance", good < len(rows)
    return Section("precision", "Low precision", summary, [about], [table], failed)


def _heat(maps: Sequence[Mapping[str, Any]]) -> Section:
    bound, tables, all_errors = FLOAT64_TOLERANCE, [], []
    for m in maps:
        rows = []
        for name, values in zip(m["rows"], m["values"], strict=True):
            rows.append(Row([Cell(name, "path"), *(_error(v, bound, "heat") for v in values)]))
            places = [f"{name} {column}" for column in m["columns"]]
            all_errors += zip(values, places, strict=True)
        tables.append(Table(m["model"], ["layer", *m["columns"]], rows, "map"))
    value, place = max(all_errors, key=_size)
    over = sum(not v <= bound for v, _ in all_errors if v is not None)
    summary = f"largest {number(value)}, at {place}" + (f"; {over} above the bound" if over else "")
    about = f"How the error grows from layer to layer and from tap to tap; bound {number(bound)}."
    return Section("heat", "Error by layer and tap", summary, [about], tables, bool(over))


def _bugs(bugs: Mapping[str, Any]) -> Section:
    counts = [(name, *bugs[name]) for name in (*OUTCOMES, "false_alarms") if bugs.get(name)]
    tables = list(_bug_tables(bugs, counts))
    about = ["Real porting mistakes, seeded into the PyTorch side one at a time."]
    for outcome in OUTCOMES:
        if missed := [row["id"] for row in bugs.get("rows") or () if not row[outcome]]:
            about.append(f"Not {outcome}: {', '.join(missed)}.")
    if bugs.get("pending"):
        about.append(
            f"{bugs['pending']} more are pending: they need features that are still to come."
        )
    said = (f"{_words(name)} {part} of {whole}" for name, part, whole in counts)
    failed = any(part < whole for name, part, whole in counts if name == "caught")
    failed |= any(part for name, part, _ in counts if name == "false_alarms")
    return Section("bugs", "Seeded bugs", ", ".join(said), about, tables, failed)


def _bug_tables(bugs: Mapping[str, Any], counts: Sequence[tuple]) -> Iterator[Table]:
    if counts:
        rows = [
            Row([Cell(_words(name)), Cell(f"{part} of {of}"), Cell(percent(part, of))])
            for name, part, of in counts
        ]
        yield Table("Score", ["", "count", "share"], rows, "figures")
    others = bugs.get("others") or ()
    if others and bugs.get("caught"):
        part, whole = bugs["caught"]
        rules = [("This toolkit", part)]
        rules += [(f"Rule {i}: {o['rule']}", o["caught"]) for i, o in enumerate(others, 1)]
        rows = [Row([Cell(n), Cell(f"{k} of {whole}", "bar", level=k / whole)]) for n, k in rules]
        yield Table("Caught, by rule", ["rule", "caught"], rows, "bars")
    if bugs.get("rows"):
        rules = [f"rule {i + 1}" for i in range(len(others))]
        rows = [_bug_row(row, len(rules)) for row in bugs["rows"]]
        yield Table("Every bug", ["bug", "mistake", *OUTCOMES, *rules, "component"], rows, "bugs")


def _bug_row(bug: Mapping[str, Any], rules: int) -> Row:
    found = " — ".join(part for part in (bug.get("at"), bug.get("cause")) if part)
    mistake = Cell(bug["name"], "mistake", note=found, links=bug.get("sources") or ())
    others = [*(bug.get("others") or ()), *[None] * rules][:rules]
    marks = [_mark(bug[outcome]) for outcome in OUTCOMES]
    marks += [Cell(_mark(good).text, "mark quiet") for good in others]
    return Row([Cell(bug["id"], "id"), mistake, *marks, Cell(bug["component"])], not bug["caught"])


def _environment(pairs: Sequence[Sequence[object]]) -> Section:
    rows = [Row([Cell(str(name)), Cell(str(value))]) for name, value in pairs]
    summary = ", ".join(f"{name} {value}" for name, value in pairs[:3])
    table = Table("What it ran on", ["what", "which"], rows)
    return Section("environment", "Environment", summary, [], [table])


def _words(name: str) -> str:
    return name.replace("_", " ")


SECTIONS = {
    "components": _components,
    "precision": _precision,
    "heat": _heat,
    "bugs": _bugs,
    "environment": _environment,
}
