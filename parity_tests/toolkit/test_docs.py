"""README and docs: what they tell a reader to type is typed here, what they show is compared.

`pages` documents the comments by which a page says what a test replaces or leaves out.
"""

import argparse
import dataclasses
import gc
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import transformer_hub
from parity_tests.processes import FIXED
from parity_tests.small_runs import few_rows
from parity_tests.toolkit.pages import PAGES, ROOT, Block, Command, read_blocks
from transformer_spec import PRESETS
from transformer_spec.parameters import parameter_shapes

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BLOCKS = {path.relative_to(ROOT).as_posix(): read_blocks(path) for path in PAGES}
SHELL, PYTHON = "sh", "python"
# Of these only the arguments can be checked here: they install, or start whole suites.
OUTSIDE = ("pip", "python3", ".", "pytest", "git", "cd", "ruff", "pyright", ".ci/run")
# What differs from one machine to the next: errors of rounding.
ROUNDING = re.compile(r"\b\d(\.\d+)?e-1[4-9]\b")


def _commands() -> Iterator[Command]:
    for blocks in BLOCKS.values():
        for block in blocks:
            if block.language == SHELL:
                yield from block.commands()


COMMANDS = list(_commands())


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_is_code_that_is_tested_or_says_why_not(page):
    for block in BLOCKS[page]:
        verbs = {instruction.verb for instruction in block.instructions}
        tested = block.language in (SHELL, PYTHON) or verbs & {"file", "output", "excerpt"}
        assert tested or "not code" in verbs, f"{page}:{block.line}"
        for instruction in block.instructions:
            assert instruction.only in block.text, f"{page}:{block.line}: {instruction}"


def test_every_command_is_one_that_can_be_run_or_says_why_it_is_not():
    for command in COMMANDS:
        known = command.words[0] in {"python", *PROJECT.get("scripts", {})}
        assert known or (command.words[0] in OUTSIDE and command.reason), command


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.reason], ids=str)
def test_a_command_that_is_not_run_exists_with_its_flags(command, request, monkeypatch, tmp_path):
    """Through the parsers of the programs themselves, none of which gets to work."""
    name, *arguments = command.words
    if name == "pytest":
        _check_pytest(arguments, request.config)
    elif name == "pip":
        _check_extras(arguments)
    elif name == ".":
        assert arguments == [".venv/bin/activate"]
    elif name not in OUTSIDE:
        monkeypatch.chdir(tmp_path)
        _check_arguments(command, monkeypatch)


@pytest.mark.parametrize("page", BLOCKS)
def test_what_a_page_tells_to_type_works_and_prints_what_the_page_shows(
    page, request, tmp_path, monkeypatch, capfd
):
    """All blocks of a page in their order, in one folder; Python blocks share their names."""
    monkeypatch.chdir(tmp_path)
    for prepare in PREPARED.get(page, ()):
        prepare()
    slow, held_back, printed = request.config.getoption("--slow-commands"), [], ""
    for block in BLOCKS[page]:
        if instruction := block.find("file"):
            Path(instruction.value).write_text(block.text + "\n", encoding="utf-8")
    shown = _run_python([block for block in BLOCKS[page] if _is_executed(block)])
    for block in BLOCKS[page]:
        if block.find("file"):
            continue
        if instruction := block.find("excerpt"):
            _compare_excerpt(block, instruction.value)
        elif block.find("output"):
            _compare_output(block, printed)
        elif block.language == PYTHON:
            printed = shown[block.line]
        elif block.language == SHELL:
            printed = ""
            for command in block.commands():
                if command.reason and not (slow and command.slow):
                    held_back.append(f"line {command.line}, {command.reason}: {command.text}")
                    continue
                with monkeypatch.context() as patch:
                    if "verification" not in command.words:  # its runs are known number by number
                        few_rows(patch)
                    status = _run(command.words, patch)
                gc.collect()  # a run holds its directory's lock until the program's end
                captured = capfd.readouterr()
                printed += captured.out
                assert status == command.status, f"{command}\n{captured.out}\n{captured.err}"
    if held_back:
        pytest.skip(f"{page}: the rest ran; not run: " + "; ".join(held_back))


def test_every_page_is_in_the_index_and_every_link_leads_somewhere():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if path.parent == ROOT / "docs" and path.name != "README.md":
            assert f"({path.name})" in index, path
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            assert "://" in target or (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_readme_fits_in_200_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


class _Parsed(BaseException):
    """Raised in place of a program's work once its arguments are parsed."""


def _check_arguments(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program starts, parses its arguments with nothing left over, and goes no further."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_and_stop(self, args=None, namespace=None):
        options, unknown = parse(self, args, namespace)
        if not self.add_help:  # train.py reads --preset first, to know the defaults
            return options, unknown
        assert not unknown, f"{command}: {unknown}"
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_and_stop)
    with pytest.raises(_Parsed):
        _run(command.words, monkeypatch)


def _check_pytest(arguments: list[str], config: pytest.Config) -> None:
    known, unknown = config._parser.parse_known_and_unknown_args(arguments)
    assert not unknown, unknown
    assert all((ROOT / path.split("::")[0]).exists() for path in known.file_or_dir), arguments
    markers = {line.split(":")[0] for line in config.getini("markers")}
    assert set(re.findall(r"\w+", known.markexpr or "")) <= markers | {"and", "or", "not"}


def _check_extras(arguments: list[str]) -> None:
    for argument in arguments:
        if extras := re.fullmatch(r"\.\[(.*)\]", argument):
            assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"]), argument


def _run(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of `python FILE`, `python -m MODULE` or a console script, in this process."""
    name, *arguments = words
    try:
        if name != "python":
            module, _, function = PROJECT["scripts"][name].partition(":")
            monkeypatch.setattr(sys, "argv", [name, *arguments])
            return getattr(import_module(module), function)() or 0
        if arguments[0] == "-m":
            monkeypatch.setattr(sys, "argv", arguments[1:])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _is_executed(block: Block) -> bool:
    return block.language == PYTHON and not (block.find("file") or block.find("excerpt"))


def _run_python(blocks: list[Block]) -> dict[int, str]:
    """Line of a block -> what it prints. One fresh process executes them all, without pytest."""
    mark = "-- block --"
    program = f"""
import sys
names = {{"__name__": "__main__"}}
for line, page, text in {[(b.line, b.page, b.text) for b in blocks]!r}:
    print({mark!r}, flush=True)
    exec(compile(chr(10) * (line - 1) + text, page, "exec"), names)
"""
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # as in this process
    environment = os.environ | FIXED | quick
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{mark}\n")[1:]
    return {block.line: text for block, text in zip(blocks, printed, strict=True)}


def _compare_output(block: Block, printed: str) -> None:
    """Lines in their order; a line `...` stands for some that are left out."""
    _assert_in_order(block, _plain(block.text), _plain(printed))


def _compare_excerpt(block: Block, name: str) -> None:
    _assert_in_order(block, block.text, (ROOT / name).read_text(encoding="utf-8"))


def _assert_in_order(block: Block, shown: str, whole: str) -> None:
    lines = iter(whole.splitlines())
    for line in shown.splitlines():
        if line.strip() and line.strip() != "...":
            found = any(line.strip() == other.strip() for other in lines)
            assert found, f"{block.page}:{block.line}: not there: {line!r}\n\n{whole}"


def _plain(text: str) -> str:
    return ROUNDING.sub("~0", text)


TEXT = (ROOT / "LICENSE").read_text(encoding="utf-8")


def _save_text() -> None:
    for name in ("my.txt", "moved.txt"):
        Path(name).write_text(TEXT, encoding="utf-8")


def _save_gpt2() -> None:
    """A tiny GPT-2 as the hub has it, with a token for each character of the text."""
    sizes = {"max_seq_len": 32, "d_model": 12, "d_ff": 17, "num_layers": 2, "num_heads": 3}
    vocabulary = len(set(TEXT))
    config = dataclasses.replace(PRESETS["gpt2"].model, vocab_size=vocabulary, **sizes)
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in parameter_shapes(config).items()
    }
    transformer_hub.save_pretrained("gpt2", transformer_hub.Pretrained("gpt2", config, arrays))


# Page -> what makes the files that a reader brings along.
PREPARED = {
    "README.md": (_save_text, _save_gpt2),
    "docs/checkpoints.md": (_save_text, _save_gpt2),
    "docs/runs.md": (_save_text,),
}
