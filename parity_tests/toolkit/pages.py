"""The blocks of the project's Markdown pages, and what the comments before them ask of a test.

A shell block is run and a Python block is executed, unless a comment right above its fence says
otherwise. Each comment holds one instruction:

    <!-- test: file mine.py -->                     write the block to this file, do not run it
    <!-- test: excerpt parity/compare.py -->        each line of the block is in that file, in order
    <!-- test: output -->                           the block is what the block before it printed
    <!-- test: status 1: parity compare -->         the exit status of such a command
    <!-- test: replace `my.txt` with `short.txt` -->    for the test alone
    <!-- test: slow (ten minutes): runs gpt2 -->        run under --slow; else its flags are checked
    <!-- test: not run (a download): -m weights -->     never run; its flags are checked
    <!-- test: not code (a tree of folders) -->     nothing to run

The words after the colon choose the commands of the block that contain them; without a colon the
instruction holds for all of them. A reason, in parentheses, is printed by the test.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))

_FENCE = re.compile(r"^```(\w*)$")
_COMMENT = re.compile(r"^<!-- test: (.*) -->$")
_INSTRUCTION = re.compile(
    r"(?P<verb>file|excerpt|output|status|replace|slow|not run|not code)"
    r"(?: \((?P<reason>[^)]+)\))?"
    r"(?: (?P<value>[^:(][^:]*?|`[^`]+` with `[^`]*`))?"
    r"(?:: (?P<only>.+))?"
)
NEEDS_REASON = {"slow", "not run", "not code"}


@dataclass(frozen=True)
class Instruction:
    """One comment: what to do, why, with what value, and for which commands of the block."""

    verb: str
    reason: str
    value: str
    only: str


@dataclass(frozen=True)
class Command:
    """One command of a shell block, without its comment.

    Attributes:
        line: where it begins in the page.
        text: as the page has it, on one line.
        words: of the command that is run, with replacements made.
        status: the exit status it must have.
        reason: why it is not run; empty where it is.
        slow: whether --slow runs it nevertheless.
    """

    page: str
    line: int
    text: str
    words: tuple[str, ...]
    status: int = 0
    reason: str = ""
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its first line's number and its text."""

    page: str
    line: int
    language: str
    text: str
    instructions: tuple[Instruction, ...] = field(default=())

    def find(self, verb: str) -> Instruction | None:
        return next((found for found in self.instructions if found.verb == verb), None)

    def commands(self) -> Iterator[Command]:
        """The commands of a shell block; `a && b` are two."""
        for line, text in _joined(self.text.splitlines(), self.line):
            for part in text.split(" && "):
                yield self._command(line, part)

    def _command(self, line: int, text: str) -> Command:
        mine = [i for i in self.instructions if not i.only or i.only in text]
        changed = text
        for instruction in mine:
            if instruction.verb == "replace":
                old, new = re.findall(r"`([^`]*)`", instruction.value)
                changed = changed.replace(old, new)
        status = next((int(i.value) for i in mine if i.verb == "status"), 0)
        held = next((i for i in mine if i.verb in ("slow", "not run")), None)
        words = tuple(shlex.split(changed, comments=True))
        return Command(
            self.page,
            line,
            text.partition("  #")[0].strip(),
            words,
            status,
            held.reason if held else "",
            held is not None and held.verb == "slow",
        )


def read_blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order.

    Raises:
        ValueError: an instruction cannot be read, lacks its reason, or stands above no block.
    """
    page = path.relative_to(ROOT).as_posix()
    blocks: list[Block] = []
    pending: list[Instruction] = []
    language: str | None = None
    text: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence, comment = _FENCE.match(line), _COMMENT.match(line)
        if language is not None:
            if line == "```":
                first = number - len(text)
                blocks.append(Block(page, first, language, "\n".join(text), tuple(pending)))
                language, pending, text = None, [], []
            else:
                text.append(line)
        elif fence:
            language = fence[1]
        elif comment:
            pending.append(_instruction(comment[1], f"{page}:{number}"))
        elif pending:
            raise ValueError(f"{page}:{number}: an instruction stands above no block")
    if language is not None or pending:
        raise ValueError(f"{page}: its last block is not closed")
    return blocks


def _instruction(text: str, where: str) -> Instruction:
    match = _INSTRUCTION.fullmatch(text)
    if not match:
        raise ValueError(f"{where}: {text!r} is no instruction")
    if match["verb"] in NEEDS_REASON and not match["reason"]:
        raise ValueError(f"{where}: say why, in parentheses: {text!r}")
    return Instruction(
        match["verb"], match["reason"] or "", match["value"] or "", match["only"] or ""
    )


def _joined(lines: list[str], first: int) -> Iterator[tuple[int, str]]:
    """(number, text) of each command, continued lines joined, comments and blank lines left out."""
    begun, start = "", first
    for number, line in enumerate(lines, first):
        start = start if begun else number
        begun += line.strip() if begun else line
        if begun.endswith("\\"):
            begun = begun.removesuffix("\\").rstrip() + " "
        else:
            if begun.strip() and not begun.lstrip().startswith("#"):
                yield start, begun.strip()
            begun = ""
