"""`python -m verification`: our twins, compared by the tool, with oracles, with golden runs."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from transformer_spec.fields import ConfigError

DESCRIPTION = """\
Shows that the Flax and the PyTorch twin of this project compute the same thing, and that the checks
which say so can fail.

  python -m verification check char-gpt --grads --steps 20
  python -m verification oracles                     every family against transformers' own classes
  python -m verification bugs                        every seeded bug: caught, located, named
  python -m verification blindfold                   the same in disguise, by the users' command
  python -m verification runs sort --updates 1000    a whole run of both twins, in every dtype
  python -m verification golden                      both twins against known losses
  python -m verification defaults                    where optax's and torch's defaults differ
  python -m verification report --html report.html   all of it on one page

Each command has a --help of its own. Exit status: 0 equal, 1 different, 2 could not compare.
"""
Arguments = Callable[[argparse.ArgumentParser], None]


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", metavar="PRESET", help="see: python train.py --list")
    parser.add_argument(
        "--dtype", default="float64", help="float64 (default), float32, bfloat16, float16"
    )
    parser.add_argument("--grads", action="store_true", help="compare all gradients too")
    parser.add_argument(
        "--steps", type=int, default=0, metavar="N", help="compare N updates made in lockstep too"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs; default: 0")


def _oracles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="MODEL", help="only these, such as llama")


def _bugs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these, such as ATT-01")
    parser.add_argument("--list", action="store_true", help="list the bugs and stop")
    parser.add_argument("--markdown", action="store_true", help="print the list as a page and stop")
    _add_false_alarms(parser, default=0)


def _blindfold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these, such as ATT-01")
    parser.add_argument("--seed", type=int, default=0, help="of the disguises; default: 0")
    _add_false_alarms(parser, default=0)


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PRESET", help="only these; default: all")
    parser.add_argument("--updates", type=int, default=1000, metavar="N", help="default: 1000")
    count = "small batches an update's batch is cut into; default: 1 and 4"
    parser.add_argument(
        "--accumulation", type=int, nargs="+", default=[1, 4], metavar="A", help=count
    )


def _golden(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="RUN", help="only these: sort, char-gpt")
    parser.add_argument("--updates", type=int, metavar="N", help="default: all 200")
    parser.add_argument("--write", action="store_true", help="write the known losses anew and stop")


def _defaults(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print the list as a page")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="a self-contained page")
    parser.add_argument("--markdown", metavar="FILE", help="the same figures for a pull request")
    _add_false_alarms(parser, default=20)
    parser.add_argument("--no-bugs", action="store_true", help="leave the seeded bugs out")


def _add_false_alarms(parser: argparse.ArgumentParser, default: int) -> None:
    count = f"compare N correct random pairs too: nothing may be reported; default: {default}"
    parser.add_argument("--false-alarms", type=int, default=default, metavar="N", help=count)


# Each command: the module whose `run_command(options)` it is, a line of help, its arguments.
COMMANDS: dict[str, tuple[str, str, Arguments]] = {
    "check": ("check", "compare a preset's twins at full size", _check),
    "oracles": ("oracles.table", "compare every family with transformers' classes", _oracles),
    "bugs": ("bugs.scoreboard", "seed every known bug into a twin and look for it", _bugs),
    "blindfold": ("blindfold.score", "find the bugs of disguised twins as users would", _blindfold),
    "runs": ("runs.table", "compare whole runs of both twins, small, in a table", _runs),
    "golden": ("golden.comparison", "compare both twins with known losses", _golden),
    "defaults": ("defaults", "list where the frameworks' defaults differ", _defaults),
    "report": ("report.measure", "write one page of measured agreement", _report),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 equal, 1 different, 2 could not compare."""
    options = _parser().parse_args(arguments)
    try:
        return _run_command(options)
    except (ConfigError, ImportError) as error:
        reason: object = error
    except KeyboardInterrupt:
        reason = "stopped"
    print(f"verification: could not compare: {reason}", file=sys.stderr)
    return 2


def _run_command(options: argparse.Namespace) -> int:
    from parity.observe import settings

    settings.make_comparable(options.platform)
    module, _, _ = COMMANDS[options.command]
    try:
        return import_module(f"verification.{module}").run_command(options)
    except settings.NotComparableError as error:
        raise ConfigError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verification",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = "where jax runs; default: the best device there is"
    parser.add_argument("--platform", choices=["cpu", "gpu", "tpu"], help=where)
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, (_, help, add_arguments) in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        add_arguments(command)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
