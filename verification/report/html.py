"""What a report is made of, and its page of HTML, which needs no network, script or font.

Text becomes markup in `element` alone, and is escaped there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby

GOOD, BAD = "\N{CHECK MARK}", "\N{BALLOT X}"
COLD, HOT = -17, -12
WEB = ("https://", "http://")
ENDS_LINE = ("caption", "dl", "h1", "h2", "header", "li", "p", "section", "thead", "tr", "ul")
HEAD = """<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
"""


@dataclass(frozen=True)
class Cell:
    """One value of a table.

    Args:
        kind: how it looks: words of number, quiet, over, mark, good, bad, path, heat, bar.
        note: a second, smaller line.
        level: its place on a scale from 0 to 1, for kinds `heat` and `bar`.
        links: addresses of what it rests on.
    """

    text: str
    kind: str = ""
    note: str = ""
    level: float = 0.0
    links: Sequence[str] = ()


@dataclass(frozen=True)
class Row:
    """The first cell says what the others are of."""

    cells: Sequence[Cell]
    failed: bool = False


@dataclass(frozen=True)
class Table:
    """Args:
    kind: `map`, `grouped` (rows with equal first cells belong together), `bars`, `figures`.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    kind: str = ""


@dataclass(frozen=True)
class Section:
    """Args:
    summary: its result in one sentence, for the top of the report.
    about: what is shown, a paragraph each.
    """

    key: str
    title: str
    summary: str
    about: Sequence[str]
    tables: Sequence[Table]
    failed: bool = False


@dataclass(frozen=True)
class Report:
    """Args:
    equal: the verdict, where there is one.
    facts: when it ran and how long.
    """

    title: str
    equal: bool | None
    sentence: str
    facts: str
    command: str
    sections: Sequence[Section]

    @property
    def word(self) -> str:
        return f"{GOOD} Equal" if self.equal else f"{BAD} Not equal"


class Safe(str):
    """Markup, which may stand as it is."""


def element(tag: str, *children: object, **attributes: object) -> Safe:
    """<tag attributes>children</tag>; everything that is not `Safe` is escaped."""
    pairs = (
        f' {name.strip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value not in (None, "")
    )
    inside = "".join(c if isinstance(c, Safe) else escape(str(c)) for c in children)
    end = "\n" if tag in ENDS_LINE else ""
    return Safe(f"<{tag}{''.join(pairs)}>{inside}</{tag}>{end}")


def page(report: Report) -> str:
    """The whole document."""
    style = files("verification.report").joinpath("report.css").read_text(encoding="utf-8")
    head = Safe(f"{HEAD}{element('title', report.title)}\n<style>\n{style}</style>\n")
    main = element("main", *map(_section, report.sections))
    body = element("body", _header(report), main)
    return f"<!DOCTYPE html>\n{element('html', element('head', head), body, lang='en')}\n"


def _header(report: Report) -> Safe:
    parts = [element("h1", report.title)]
    if report.equal is not None:
        kind = "good" if report.equal else "bad"
        text = (element("strong", report.word), " ", element("span", report.sentence))
        parts.append(element("p", *text, class_=f"verdict {kind}"))
    if report.facts:
        parts.append(element("p", report.facts, class_="facts"))
    if report.command:
        parts.append(element("p", element("code", report.command), class_="command"))
    if report.sections:
        links = element("ul", *map(_link, report.sections))
        parts.append(element("nav", links, aria_label="Sections"))
    return element("header", *parts)


def _link(section: Section) -> Safe:
    sign = f"{BAD} " if section.failed else ""
    summary = element("span", f"{sign}{section.summary}", class_="bad" if sign else "")
    return element("li", element("a", section.title, href=f"#{section.key}"), " ", summary)


def _section(section: Section) -> Safe:
    heading = element("h2", section.title, id=f"{section.key}-title")
    about = [element("p", text) for text in section.about]
    scale = [_scale()] if any(t.kind == "map" for t in section.tables) else []
    tables = [_figures(t) if t.kind == "figures" else _table(t) for t in section.tables]
    named = {"id": section.key, "aria_labelledby": f"{section.key}-title"}
    return element("section", heading, *about, *scale, *tables, **named)


def _scale() -> Safe:
    """What the colours of a heat map stand for."""
    steps = [Cell(f"1e{e}", "heat", level=(e - COLD) / (HOT - COLD)) for e in range(COLD, HOT + 1)]
    cells = [*steps, Cell(f"{BAD} above the bound", "heat over", level=1.0)]
    items = (element("li", c.text, class_=c.kind, style=_style(c)) for c in cells)
    return element("ul", *items, class_="scale", aria_label="Scale of colours")


def _figures(table: Table) -> Safe:
    """Each row as one big figure: name, count, percent."""
    figures = []
    for row in table.rows:
        name, count, percent = row.cells
        about = element("dd", count.text, class_="quiet")
        value = element("dd", percent.text, class_=f"big {percent.kind}")
        figures.append(element("div", element("dt", name.text), value, about))
    return element("dl", *figures, class_="figures")


def _table(table: Table) -> Safe:
    """A table that scrolls inside its own frame where it is too wide."""
    caption = element("caption", element("span", table.caption))
    heads = (element("th", name, scope="col") for name in table.columns)
    whole = element(
        "table",
        caption,
        element("thead", element("tr", *heads)),
        *_bodies(table),
        class_=table.kind,
    )
    named = {"role": "region", "aria_label": table.caption}
    return element("div", whole, class_="scroll", tabindex=0, **named)


def _bodies(table: Table) -> Iterable[Safe]:
    if table.kind != "grouped":
        yield element("tbody", *(_row(r, [_cell(r.cells[0], scope="row")]) for r in table.rows))
        return
    for _, group in groupby(table.rows, lambda row: row.cells[0].text):
        rows = list(group)
        first = _cell(rows[0].cells[0], scope="rowgroup", rowspan=len(rows))
        yield element("tbody", *(_row(r, [] if i else [first]) for i, r in enumerate(rows)))


def _row(row: Row, first: Sequence[Safe]) -> Safe:
    return element("tr", *first, *map(_cell, row.cells[1:]), class_="failed" if row.failed else "")


def _cell(cell: Cell, scope: str = "", **attributes: object) -> Safe:
    text: object = cell.text
    if "path" in cell.kind:
        text = Safe(escape(cell.text).replace(".", ".<wbr>"))
    addresses = [link for link in cell.links if link.startswith(WEB)]
    links = [element("a", f"[{i}]", href=link) for i, link in enumerate(addresses, 1)]
    sources = [part for link in links for part in (" ", link)]
    note = [element("small", cell.note, *sources)] if cell.note or links else []
    bar = [element("span", style=_style(cell), class_="bar")] if cell.kind == "bar" else []
    style = _style(cell) if "heat" in cell.kind else ""
    tag = "th" if scope else "td"
    return element(tag, *bar, text, *note, scope=scope, class_=cell.kind, style=style, **attributes)


def _style(cell: Cell) -> str:
    return f"--level: {cell.level:.2f}"
