"""`python -m parity`: compare two models, check a preset, ask oracles, score bugs, report."""

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from transformer_spec.command_line import Parser, check_backend
from transformer_spec.fields import ConfigError

DESCRIPTION = """\
Where a Flax model departs from its PyTorch twin, by how much, and why.

  python -m parity compare mine.py:build_torch mine.py:build_flax --inputs 2x7x16
  python -m parity compare mine.py:build_torch mine.py:build_flax --inputs ids=2x7:50 \\
      --rename Dense_0=fc1 --rename LayerNorm_0=norm
  python -m parity check char-gpt --grads --steps 20
  python -m parity oracles                       every family against transformers' own classes
  python -m parity bugs                          every planted bug: caught, located, named
  python -m parity runs sort --updates 1000      a whole run of both twins, in every dtype
  python -m parity golden                        both twins against known losses
  python -m parity defaults                      where optax's and torch's defaults differ
  python -m parity curves runs/a runs/b          losses of runs, and how far apart they are
  python -m parity report --html report.html     one page of all of it

Exit status: 0 equal, 1 different, 2 could not compare.
"""
COMPARE = """\
build_torch() returns a torch module, in evaluation mode. build_flax() returns a Linen module, or
(module, variables). With a module alone, torch's weights are copied to it; with variables, they are
copied to torch, unless --weights says otherwise. Names cross by rule (layers_0 is layers.0, kernel
is weight transposed, embedding and scale are weight) and by --rename.
"""


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        check_backend("both")
        return _run(options)
    except ConfigError as error:
        return _could_not(error)
    except KeyboardInterrupt:
        return _could_not("stopped")


def _run(options: argparse.Namespace) -> int:
    from parity import settings

    settings.make_comparable(options.platform)
    try:
        return options.run(options)
    except settings.NotComparableError as error:
        return _could_not(error)


def _could_not(reason: Exception | str) -> int:
    print(f"parity: could not compare: {reason}", file=sys.stderr)
    return 2


def _parser() -> Parser:
    parser = Parser(
        prog="parity", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = "where jax runs; default: what is there"
    parser.add_argument("--platform", choices=["cpu", "gpu", "tpu"], help=where)
    names = "compare|check|oracles|bugs|runs|golden|defaults|curves|report"
    commands = parser.add_subparsers(required=True, metavar=names)
    _add_compare(commands)
    _add_check(commands)
    _add_oracles(commands)
    _add_bugs(commands)
    _add_runs(commands)
    _add_golden(commands)
    _add_defaults(commands)
    _add_curves(commands)
    _add_report(commands)
    return parser


def _command(commands: Any, name: str, run: Any, help: str, description: str = "") -> Any:
    command = commands.add_parser(
        name,
        help=help,
        description=description or help,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    command.add_argument("--json", action="store_true", help="print JSON instead of text")
    return command


def _add_compare(commands: Any) -> None:
    command = _command(commands, "compare", _compare, "compare any torch and Flax module", COMPARE)
    command.add_argument("torch", metavar="FILE.py:FUNCTION", help="returns the torch module")
    command.add_argument("flax", metavar="FILE.py:FUNCTION", help="returns the Flax module")
    what = "2x5x12 (normal), 2x7:50 (ids below 50), NAME=..., file.npz, file.py:function"
    command.add_argument("--inputs", nargs="+", required=True, metavar="SPEC", help=what)
    renaming = "Flax name to torch name, where the rule is not enough; as often as needed"
    command.add_argument(
        "--rename", action="append", default=[], metavar="FLAX=TORCH", help=renaming
    )
    command.add_argument("--weights", choices=["torch", "flax", "loaded"], help="whose both use")
    command.add_argument(
        "--dtype", default="float64", help="float64 (default), float32, bfloat16, float16"
    )
    command.add_argument(
        "--reference", default="torch", choices=["torch", "flax"], help="default: torch"
    )
    command.add_argument("--no-grads", action="store_true", help="compare the forward pass alone")


def _add_check(commands: Any) -> None:
    command = _command(commands, "check", _check, "hold a preset's twins against each other")
    command.add_argument("preset", metavar="PRESET", help="see: python train.py --list")
    command.add_argument(
        "--dtype", default="float64", help="float64 (default), float32, bfloat16, float16"
    )
    command.add_argument("--grads", action="store_true", help="compare all gradients too")
    command.add_argument(
        "--steps", type=int, default=0, metavar="N", help="and N updates in lockstep"
    )
    command.add_argument("--seed", type=int, default=0, help="of weights and inputs; default: 0")


def _add_oracles(commands: Any) -> None:
    command = _command(commands, "oracles", _oracles, "hold every family against transformers")
    command.add_argument("names", nargs="*", metavar="MODEL", help="these alone, such as llama")


def _add_bugs(commands: Any) -> None:
    command = _command(commands, "bugs", _bugs, "plant every known bug and look for it")
    command.add_argument("ids", nargs="*", metavar="ID", help="these alone, such as ATT-01")
    command.add_argument("--list", action="store_true", help="show the list and stop")
    command.add_argument("--markdown", action="store_true", help="print the list as a page")
    count = "also hold N correct random pairs against each other; default: 0"
    command.add_argument("--false-alarms", type=int, default=0, metavar="N", help=count)


def _add_runs(commands: Any) -> None:
    command = _command(
        commands, "runs", _run_of("run_table"), "hold whole runs of both twins, small, in a table"
    )
    command.add_argument("names", nargs="*", metavar="PRESET", help="these alone; default: all")
    command.add_argument("--updates", type=int, default=1000, metavar="N", help="default: 1000")
    count = "small batches of an update; default: 1 and 4"
    command.add_argument(
        "--accumulation", type=int, nargs="+", default=[1, 4], metavar="A", help=count
    )


def _add_golden(commands: Any) -> None:
    command = _command(
        commands, "golden", _run_of("golden"), "hold both twins against known losses"
    )
    command.add_argument("names", nargs="*", metavar="RUN", help="these alone: sort, char-gpt")
    command.add_argument("--updates", type=int, metavar="N", help="default: all 200")
    command.add_argument("--write", action="store_true", help="write the files anew and stop")


def _add_defaults(commands: Any) -> None:
    command = _command(
        commands, "defaults", _run_of("defaults"), "where the frameworks' defaults differ"
    )
    command.add_argument("--markdown", action="store_true", help="print the list as a page")


def _add_curves(commands: Any) -> None:
    run = _run_of("curves")
    command = _command(commands, "curves", run, "losses of runs of train.py, update by update")
    command.add_argument("runs", nargs="+", metavar="RUN", help="directories; the first is held to")
    picture = "all losses, and below them the differences; none: no picture; default: curves.png"
    command.add_argument("--out", default="curves.png", metavar="FILE.png", help=picture)


def _add_report(commands: Any) -> None:
    command = _command(
        commands, "report", _run_of("measure"), "write one page of measured agreement"
    )
    command.add_argument("--html", metavar="FILE", help="a self-contained page")
    command.add_argument("--markdown", metavar="FILE", help="the same figures for a pull request")
    count = "correct random pairs for false alarms; default: 20"
    command.add_argument("--false-alarms", type=int, default=20, metavar="N", help=count)
    command.add_argument("--no-bugs", action="store_true", help="leave the planted bugs out")


def _compare(options: argparse.Namespace) -> int:
    from parity import loading
    from parity.pair import compare

    twin, built = loading.call(options.torch), loading.call(options.flax)
    module, variables = built if isinstance(built, tuple) else (built, None)
    _show_settings(options, twin)
    result = compare(
        twin,
        module,
        variables,
        loading.inputs(options.inputs),
        weights=options.weights,
        renames=loading.renames(options.rename),
        dtype=options.dtype,
        reference=options.reference,
        gradients=not options.no_grads,
    )
    print(json.dumps(result.to_dict(), indent=1) if options.json else result)
    return 0 if result.equal else 1


def _check(options: argparse.Namespace) -> int:
    from parity import check

    check.refuse_steps(options.steps, options.dtype)
    _show_settings(options)
    return check.run(options)


def _show_settings(options: argparse.Namespace, module: Any = None) -> None:
    from parity import settings, terminal

    if not options.json:
        mode = settings.mode(module) if hasattr(module, "training") else {}
        print(terminal.heading(settings.describe() | mode) + "\n", flush=True)


def _oracles(options: argparse.Namespace) -> int:
    from parity.oracles import table

    return table.run(options.names, options.json)


def _bugs(options: argparse.Namespace) -> int:
    from parity import scoreboard

    if options.markdown:
        print(scoreboard.page(), end="")
        return 0
    return scoreboard.run(options.ids, options.list, options.false_alarms, options.json)


def _run_of(module: str) -> Callable[[argparse.Namespace], int]:
    """`run(options)` of a module of ours, which is imported when it is asked for."""
    return lambda options: import_module(f"parity.{module}").run(options)


if __name__ == "__main__":
    raise SystemExit(main())
