"""`python -m verification`: our own twins held by the tool, by oracles and by known runs."""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from transformer_spec.fields import ConfigError
from transformer_training.command_line import Parser, check_backend

DESCRIPTION = """\
What shows that the Flax and the PyTorch twin of this project compute the same thing.

  python -m verification check char-gpt --grads --steps 20
  python -m verification oracles                 every family against transformers' own classes
  python -m verification bugs                    every seeded bug: caught, located, named
  python -m verification runs sort --updates 1000    a whole run of both twins, in every dtype
  python -m verification golden                  both twins against known losses
  python -m verification defaults                where optax's and torch's defaults differ
  python -m verification report --html report.html   one page of all of it

Exit status: 0 equal, 1 different, 2 could not compare.
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
    from parity.observe import settings

    settings.make_comparable(options.platform)
    try:
        return options.run(options)
    except settings.NotComparableError as error:
        return _could_not(error)


def _could_not(reason: Exception | str) -> int:
    print(f"verification: could not compare: {reason}", file=sys.stderr)
    return 2


def _parser() -> Parser:
    parser = Parser(
        prog="verification",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = "where jax runs; default: what is there"
    parser.add_argument("--platform", choices=["cpu", "gpu", "tpu"], help=where)
    names = "check|oracles|bugs|runs|golden|defaults|report"
    commands = parser.add_subparsers(required=True, metavar=names)
    _add_check(commands)
    _add_oracles(commands)
    _add_bugs(commands)
    _add_runs(commands)
    _add_golden(commands)
    _add_defaults(commands)
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
        commands, "runs", _run_of("runs.table"), "hold whole runs of both twins, small, in a table"
    )
    command.add_argument("names", nargs="*", metavar="PRESET", help="these alone; default: all")
    command.add_argument("--updates", type=int, default=1000, metavar="N", help="default: 1000")
    count = "small batches of an update; default: 1 and 4"
    command.add_argument(
        "--accumulation", type=int, nargs="+", default=[1, 4], metavar="A", help=count
    )


def _add_golden(commands: Any) -> None:
    command = _command(
        commands, "golden", _run_of("golden_runs"), "hold both twins against known losses"
    )
    command.add_argument("names", nargs="*", metavar="RUN", help="these alone: sort, char-gpt")
    command.add_argument("--updates", type=int, metavar="N", help="default: all 200")
    command.add_argument("--write", action="store_true", help="write the files anew and stop")


def _add_defaults(commands: Any) -> None:
    command = _command(
        commands, "defaults", _run_of("defaults"), "where the frameworks' defaults differ"
    )
    command.add_argument("--markdown", action="store_true", help="print the list as a page")


def _add_report(commands: Any) -> None:
    command = _command(
        commands, "report", _run_of("report.measure"), "write one page of measured agreement"
    )
    command.add_argument("--html", metavar="FILE", help="a self-contained page")
    command.add_argument("--markdown", metavar="FILE", help="the same figures for a pull request")
    count = "correct random pairs for false alarms; default: 20"
    command.add_argument("--false-alarms", type=int, default=20, metavar="N", help=count)
    command.add_argument("--no-bugs", action="store_true", help="leave the planted bugs out")


def _check(options: argparse.Namespace) -> int:
    from verification import check

    check.refuse_steps(options.steps, options.dtype)
    _show_settings(options)
    return check.run(options)


def _show_settings(options: argparse.Namespace) -> None:
    from parity import report
    from parity.observe import settings

    if not options.json:
        print(report.heading(settings.describe()) + "\n", flush=True)


def _oracles(options: argparse.Namespace) -> int:
    from verification.oracles import table

    return table.run(options.names, options.json)


def _bugs(options: argparse.Namespace) -> int:
    from verification.bugs import scoreboard

    if options.markdown:
        print(scoreboard.page(), end="")
        return 0
    return scoreboard.run(options.ids, options.list, options.false_alarms, options.json)


def _run_of(module: str) -> Callable[[argparse.Namespace], int]:
    """`run(options)` of a module of ours, which is imported when it is asked for."""
    return lambda options: import_module(f"verification.{module}").run(options)


if __name__ == "__main__":
    raise SystemExit(main())
