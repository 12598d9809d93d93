"""The report: well-formed, self-contained, escaped, and true to the run also where it failed."""

import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest

from verification.report import pages

VOID = {"meta", "wbr", "br"}
HOSTILE = "</title></style><script>alert('x')</script>\"' onload=\"x\" | & `*_[a](b)\nnext"
TAPS = ["q", "k", "v", "scores", "weights", "context", "attn", "ffn", "block"]
PARTS = ["norms LayerNorm", "norms RMSNorm", "attention causal grouped", "feed_forward swiglu"]
SECTIONS = ("components", "precision", "heat", "bugs", "environment")
RULES = {"max |a - b| <= 1e-5 on logits in float32": 35, "allclose": 23, "equal tokens": 0}
SIDES = [f"{side}_{of}" for of in ("output", "gradient") for side in pages.SIDES]


def the_run() -> dict:
    """A run as long as a real one."""
    rng = np.random.default_rng(0)

    def errors(keys, low=-16.6, high=-14.5):
        return dict(zip(keys, (10 ** rng.uniform(low, high, len(keys))).tolist(), strict=True))

    names = [f"{PARTS[i % 4]} {i}" for i in range(30)]
    components = [errors(pages.ERRORS) | {"name": n, "bound": 1e-12, "equal": True} for n in names]
    components[2] |= {"floored": ["q_proj.bias", "k_proj.bias"]}
    components[3]["input"] = None
    precision = []
    for dtype, high in (("float32", -6), ("bfloat16", -2), ("float16", -3)):
        rows = [errors(SIDES, high - 1, high) | {"component": name} for name in names]
        precision += [row | {"dtype": dtype, "equal": True} for row in rows]
    heat = {"model": "char-gpt", "columns": TAPS}
    heat["rows"] = [f"decoder.layers.{i}" for i in range(12)]
    heat["values"] = [list(errors(TAPS).values()) for _ in range(12)]
    heat["values"][0][3] = None
    run = {"title": "Parity report", "when": "2026-11-29 20:10 UTC", "seconds": 312.4}
    run |= {"command": "python -m verification report --seed 0", "bugs": the_bugs(), "heat": [heat]}
    run["verdict"] = {"equal": True, "text": "30 of 30 equal; every seeded bug caught"}
    run["environment"] = [["jax", "0.10.2"], ["torch", "2.13.0"], ["device", "cpu"], ["x64", "on"]]
    return run | {"components": components, "precision": precision}


def one_bug(i: int) -> dict:
    name = "Scores divided by the square root of the model's width"
    cause = "score scale 0.125 = 1 / sqrt(d_model), not 0.354 = 1 / sqrt(head_dim)"
    bug = {"id": f"ATT-{i:02}", "name": name, "component": "attention", "cause": cause}
    bug |= {"caught": True, "located": i % 30 != 7, "named": i % 14 != 7}
    return bug | {"at": "decoder.layers.0.attn", "others": [i % 2 == 0, i % 3 == 0, False]}


def the_bugs() -> dict:
    rows = [one_bug(i) for i in range(69)]
    rows[0]["sources"] = ["https://example.org/1", "javascript:alert(1)"]
    bugs = {name: [sum(row[name] for row in rows), 69] for name in pages.OUTCOMES}
    others = [{"rule": rule, "caught": n} for rule, n in RULES.items()]
    return bugs | {"false_alarms": [0, 500], "pending": 46, "others": others, "rows": rows}


def failing_run() -> dict:
    run = the_run()
    run["verdict"] = {"equal": False, "text": "29 of 30 equal; attention differs"}
    run["components"][5] |= {"output": 3.4e-5, "equal": False}
    run["precision"][4]["equal"] = False
    run["heat"][0]["values"][7][4] = 6.7e-9
    run["bugs"]["rows"][4] |= {"caught": False, "located": False, "named": False}
    run["bugs"]["caught"] = [68, 69]
    return run


class Page(HTMLParser):
    """What a page holds; an unbalanced tag is an error."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(self.words)

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "title"):
            self.words += data.split()


def hostile(value):
    """The same run with every text replaced by a hostile one."""
    if isinstance(value, dict):
        return {k: hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return HOSTILE if isinstance(value, str) else value


def test_a_page_is_whole_and_semantic():
    text = pages.html(the_run())
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert text.startswith("<!DOCTYPE html>\n")
    assert ("html", {"lang": "en"}) in page.tags
    assert tags.count("h1") == tags.count("main") == tags.count("title") == 1
    assert tags.count("caption") == tags.count("table") == 6
    assert all(attrs["scope"] for tag, attrs in page.tags if tag == "th")
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    inner = [a["href"][1:] for t, a in page.tags if t == "a" and a["href"].startswith("#")]
    assert inner == list(SECTIONS)
    assert set(inner) < set(ids)
    assert len(set(ids)) == len(ids)


def test_nothing_is_fetched():
    tags = Page(text := pages.html(the_run())).tags
    assert not {"script", "link", "img", "iframe", "base"} & {tag for tag, _ in tags}
    assert not any("src" in attrs for _, attrs in tags)
    assert not re.search(r"url\(|@import", text)
    assert re.findall(r"https?://[^\"]*", text) == ["https://example.org/1"]
    assert "javascript:" not in text


def test_the_numbers_are_there():
    run = the_run()
    page, text = Page(pages.html(run)).text, pages.markdown(run)
    values = [c[k] for c in run["components"] for k in pages.ERRORS if c[k] is not None]
    values += [row[side] for row in run["precision"] for side in SIDES]
    values += [v for row in run["heat"][0]["values"] for v in row if v is not None]
    assert all(f"{value:.1e}" in page and f"{value:.1e}" in text for value in values)
    for shown in (page, text):
        assert shown.count("bound 1.0e-12") == 2
        assert all(t in shown for t in ("69 of 69", "66 of 69", "95.6 %", "0 of 500", "23 of 69"))
        assert all(t in shown for t in ("k_proj.bias", "46 more", "5 min 12 s", "2.13.0"))


def test_every_row_has_as_many_cells_as_its_table_has_columns():
    text = pages.html(the_run())
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        columns = len(re.findall(r"<th ", table.split("</thead>")[0]))
        for body in table.split("<tbody>")[1:]:
            cells = [len(re.findall(r"<t[hd][ >]", row)) for row in body.split("</tr>")[:-1]]
            assert cells[0] == columns
            assert all(n == columns - ("rowspan" in body) for n in cells[1:])


@pytest.mark.parametrize("run", [the_run(), failing_run(), hostile(the_run())])
def test_markdown_tables_are_regular(run):
    blocks = pages.markdown(run).split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) == 7
    for lines in tables:
        assert re.fullmatch(r"\|(---\|)+", lines[1])
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_markdown_leads_with_the_verdict_and_opens_what_failed():
    good, bad = pages.markdown(the_run()), pages.markdown(failing_run())
    assert good.startswith("## ✓ Equal: 30 of 30 equal; every seeded bug caught\n")
    assert bad.startswith("## ✗ Not equal: 29 of 30 equal; attention differs\n")
    assert "<details open>" not in good
    assert bad.count("<details open>") == 4
    assert good.count("<details") == good.count("</details>") == 5


def test_a_failure_is_said_in_words():
    page = Page(pages.html(failing_run())).text
    assert "✗ Not equal 29 of 30 equal; attention differs" in page
    assert "✓ Equal" not in page
    assert all(t in page for t in ("✗ differs", "✗ 3.4e-05", "✗ beyond tolerance", "✗ 6.7e-09"))
    assert all(t in page for t in ("1 above the bound", "Not caught: ATT-04."))
    good = Page(pages.html(the_run())).text
    assert "✓ Equal 30 of 30" in good
    assert not re.search("Not equal|differs|beyond tolerance|Not caught", good)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_above_the_bound(value):
    run = the_run()
    run["components"][0] |= {"output": value, "equal": False}
    run["heat"][0]["values"][0][0] = value
    page = Page(pages.html(run)).text
    assert page.count(f"✗ {value}") == 2
    assert f"largest {value}, at decoder.layers.0 q; 1 above the bound" in page


def test_text_from_the_run_is_escaped():
    page, text = pages.html(hostile(the_run())), pages.markdown(hostile(the_run()))
    good, bad = (Page(p).tags for p in (pages.html(the_run()), page))
    assert {tag for tag, _ in bad} <= {tag for tag, _ in good}
    assert {key for _, attrs in bad for key in attrs} == {key for _, a in good for key in a}
    assert escape(HOSTILE) in page
    assert "<script" not in page + text
    assert "](" not in text.replace("\\](", "")


@pytest.mark.parametrize("empty", ["gone", None, "empty"])
def test_every_part_may_be_missing(empty):
    whole = the_run()
    for key in whole:
        run = whole | {key: type(whole[key])() if empty == "empty" else None}
        if empty == "gone":
            del run[key]
        tags = Page(pages.html(run)).tags
        shown = [attrs["id"] for tag, attrs in tags if tag == "section"]
        assert shown == [name for name in SECTIONS if name != key]
        assert pages.markdown(run).startswith("## ")
    for key in whole["bugs"]:
        run = whole | {"bugs": {k: v for k, v in whole["bugs"].items() if k != key}}
        assert Page(pages.html(run)).text.count("Seeded bugs") == 2
        assert "**Seeded bugs**" in pages.markdown(run)
    assert Page(pages.html({})).text == pages.markdown({})[3:].strip() == "Parity report"


def test_no_percentage_is_rounded_to_all_or_nothing():
    shares = [(0, 500), (1, 10**6), (9999, 10**4), (3, 3), (0, 0)]
    assert [pages.percent(*s) for s in shares] == ["0 %", "0.1 %", "99.9 %", "100 %", pages.DASH]


@pytest.mark.parametrize("width", [320, 375, 1280])
def test_a_browser_shows_it_without_sideways_scrolling(tmp_path, width):
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("no chromium on PATH: how the page is laid out is not looked at")
    run = failing_run() | {"command": "x" * 300}
    measure = "e = frames[0].document.documentElement; document.title = "
    measure += "[e.scrollWidth, e.clientWidth, e.scrollHeight].join(' ')"
    frame = f'<iframe width="{width}" srcdoc="{escape(pages.html(run))}" onload="{measure}">'
    outer = tmp_path / "frame.html"
    outer.write_text(f"<!DOCTYPE html><body>{frame}</iframe>", "utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", outer.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    wide, visible, high = map(int, re.search(r"<title>(.*?)</title>", shown.stdout)[1].split())
    assert wide <= visible <= width
    assert high > 2000
