"""The command line: `python -m parity compare`."""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from parity.suggestions import suggest

DESCRIPTION = """\
Show where a Flax model departs from its PyTorch twin, by how much, and why.

  python -m parity compare mine.py:build_torch mine.py:build_flax --inputs 2x7x16
  python -m parity compare mine.py:build_torch mine.py:build_flax --inputs ids=2x7:50 \\
      --rename Dense_0=fc1 --rename LayerNorm_0=norm
  python -m parity train-step mine.py:torch_training mine.py:jax_training --batches mine.py:batches

Exit status: 0 equal, 1 different, 2 could not compare.
"""
COMPARE = """\
build_torch() returns a torch module in evaluation mode; build_flax() returns a Linen module, or
(module, variables). A module alone is given torch's weights; with variables, theirs are given to
torch, unless --weights says otherwise.

Parameters are matched by name: layers_0 is layers.0, kernel is weight transposed, embedding and
scale are weight. --rename tells what this rule misses, as often as needed.

Both sides run in float64 on the same inputs. Every value and gradient is compared; where they
differ, the report names the first fault, the modules whose own code differs, and the causes.
"""
INPUTS = """\
2x5x12 draws normal numbers of that shape, 2x7:50 draws ids below 50, NAME=2x5x12 passes them by
that name; file.npz holds arrays by name; file.py:function returns them
"""
INSTALL = {
    "torch": "pip install torch --index-url https://download.pytorch.org/whl/cpu",
    "jax": "pip install jax",
    "flax": "pip install flax",
}
MOVED = {
    name: f"python -m verification {name}"
    for name in ("check", "oracles", "bugs", "runs", "golden", "defaults", "report")
} | {"curves": "python -m transformer_training.curves"}
_INVALID_CHOICE = re.compile(r"argument (?P<argument>.*): invalid choice: '(?P<given>.*?)' .*")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says in one line what is wrong and what may be meant."""

    def error(self, message: str) -> NoReturn:
        if found := _INVALID_CHOICE.fullmatch(message):
            argument, given = found["argument"], found["given"]
            choices = re.sub(r"['(),]", "", message.partition("choose from ")[2]).split()
            message = f"{argument}: no {given!r}; {suggest(given, choices)}"
        self.exit(2, f"{self.prog}: error: {message}\n")

    def flags(self) -> list[str]:
        """Every flag, as it is typed."""
        return [flag for action in self._actions for flag in action.option_strings]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser, compare_parser = _parsers()
    if words[:1] == ["train-step"]:
        from parity.training.command import main as train_step

        return train_step(words[1:])
    if words and words[0] in MOVED:
        parser.error(f"`{words[0]}` has moved: {MOVED[words[0]]}")
    flags = [*parser.flags(), *compare_parser.flags()]
    for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
        if flag not in flags:
            parser.error(f"{flag}: no such flag; {suggest(flag, flags)}")
    options = parser.parse_args(words)
    for framework, command in INSTALL.items():
        if find_spec(framework) is None:
            parser.error(f"{framework} is not installed; run: {command}")
    return _compare(options)


def _parsers() -> tuple[Parser, Parser]:
    """The whole command line, and the part behind `compare`."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="parity", description=DESCRIPTION, formatter_class=raw, allow_abbrev=False)
    parser.add_argument(
        "--platform", choices=["cpu", "gpu", "tpu"], help="where jax runs; default: what is there"
    )
    commands = parser.add_subparsers(required=True, metavar="compare")
    command = commands.add_parser(
        "compare",
        help="compare any torch module with any Linen module",
        description=COMPARE,
        formatter_class=raw,
        allow_abbrev=False,
    )
    _add_arguments(command)
    commands.add_parser("train-step", help="compare a training in JAX with one in torch")
    return parser, command


def _add_arguments(command: Parser) -> None:
    command.add_argument("torch", metavar="FILE.py:FUNCTION", help="returns the torch module")
    command.add_argument("jax", metavar="FILE.py:FUNCTION", help="returns the JAX model")
    command.add_argument("--inputs", nargs="+", required=True, metavar="SPEC", help=INPUTS)
    command.add_argument(
        "--jax-inputs", nargs="+", metavar="SPEC", help="the JAX side's own, where they differ"
    )
    for side in ("torch", "jax"):
        command.add_argument(
            f"--{side}-options",
            nargs="+",
            default=[],
            metavar="NAME=VALUE",
            help=f"further keyword arguments of the {side} model's call: train=False",
        )
    command.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="FLAX=TORCH",
        help="a Linen module's or parameter's name and torch's name for it",
    )
    command.add_argument(
        "--map", metavar="FILE", help="a map of the weights, as --save-map writes it"
    )
    command.add_argument(
        "--save-map", metavar="FILE", help="write which arrays were taken for which"
    )
    command.add_argument(
        "--weights",
        choices=["torch", "jax", "loaded"],
        type=_without_flax,
        help="whose weights both sides use; loaded: both as they are",
    )
    command.add_argument(
        "--dtype", default="float64", help="float64 (default), float32, bfloat16, float16"
    )
    command.add_argument(
        "--reference",
        default="torch",
        choices=["torch", "jax"],
        type=_without_flax,
        help="the side taken to be right; default: torch",
    )
    command.add_argument("--no-grads", action="store_true", help="compare the forward pass alone")
    command.add_argument("--json", action="store_true", help="print JSON instead of text")
    command.add_argument(
        "--traceback", action="store_true", help="show where a fault of the tool itself arises"
    )


def _without_flax(side: str) -> str:
    """The side's name of today: it was "flax" while the tool knew Linen alone."""
    return "jax" if side == "flax" else side


def _show(text: str) -> None:
    """Print, though the reader may have gone before the end (`| head`)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _compare(options: argparse.Namespace) -> int:
    from parity.observe import settings

    settings.make_comparable(options.platform)
    try:
        return _compare_loaded(options)
    except settings.NotComparableError as error:
        print(f"parity: could not compare: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("parity: stopped", file=sys.stderr)
    except Exception as error:
        if options.traceback:
            raise
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        print(
            f"parity: could not compare: a fault of this tool, not of the models: {said}; please "
            "report it with what --traceback prints",
            file=sys.stderr,
        )
    return 2


def _compare_loaded(options: argparse.Namespace) -> int:
    from parity import loading
    from parity.comparison import compare
    from parity.progress import Progress

    torch = loading.call_target(options.torch)
    jax = loading.call_target(options.jax)
    loading.require_writable("--save-map", options.save_map)
    progress = Progress(sys.stderr)
    result = compare(
        torch,
        jax,
        inputs=loading.load_inputs(options.inputs),
        jax_inputs=loading.load_inputs(options.jax_inputs) if options.jax_inputs else None,
        weights=options.weights,
        renames=loading.parse_renames(options.rename),
        weight_map=loading.read_text("--map", options.map),
        dtype=options.dtype,
        reference=options.reference,
        gradients=not options.no_grads,
        torch_options=loading.parse_options("--torch-options", options.torch_options),
        jax_options=loading.parse_options("--jax-options", options.jax_options),
        report=progress.report,
    )
    progress.clear()
    if options.save_map and result.weight_map is not None:
        Path(options.save_map).write_text(result.weight_map.to_text())
    _show(json.dumps(result.to_dict(), indent=1) if options.json else str(result))
    return 0 if result.equal else 1
