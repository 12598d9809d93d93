"""`python -m parity`: compare a torch model with a Flax model."""

import argparse
import json
import sys
from typing import Any

from transformer_spec.fields import ConfigError
from transformer_training.command_line import Parser, check_backend

DESCRIPTION = """\
Where a Flax model departs from its PyTorch twin, by how much, and why.

  python -m parity compare mine.py:build_torch mine.py:build_flax --inputs 2x7x16
  python -m parity compare mine.py:build_torch mine.py:build_flax --inputs ids=2x7:50 \\
      --rename Dense_0=fc1 --rename LayerNorm_0=norm

Exit status: 0 equal, 1 different, 2 could not compare.
"""
COMPARE = """\
build_torch() returns a torch module, in evaluation mode. build_flax() returns a Linen module, or
(module, variables). With a module alone, torch's weights are copied to it; with variables, they are
copied to torch, unless --weights says otherwise. Names cross by rule (layers_0 is layers.0, kernel
is weight transposed, embedding and scale are weight) and by --rename.
"""


MOVED = ("check", "oracles", "bugs", "runs", "golden", "defaults", "report")


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
    print(f"parity: could not compare: {reason}", file=sys.stderr)
    return 2


def _parser() -> Parser:
    parser = Parser(
        prog="parity", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = "where jax runs; default: what is there"
    parser.add_argument("--platform", choices=["cpu", "gpu", "tpu"], help=where)
    commands = parser.add_subparsers(required=True, metavar="compare")
    _add_compare(commands)
    for name in MOVED:
        commands.add_parser(name, help=f"now: python -m verification {name}").set_defaults(
            run=_moved, name=name
        )
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


def _compare(options: argparse.Namespace) -> int:
    from parity import loading
    from parity.comparison import compare

    twin, built = loading.call_target(options.torch), loading.call_target(options.flax)
    module, variables = built if isinstance(built, tuple) else (built, None)
    _show_settings(options, twin)
    result = compare(
        twin,
        module,
        variables,
        loading.load_inputs(options.inputs),
        weights=options.weights,
        renames=loading.parse_renames(options.rename),
        dtype=options.dtype,
        reference=options.reference,
        gradients=not options.no_grads,
    )
    print(json.dumps(result.to_dict(), indent=1) if options.json else result)
    return 0 if result.equal else 1


def _show_settings(options: argparse.Namespace, module: Any = None) -> None:
    from parity import report
    from parity.observe import settings

    if not options.json:
        mode = settings.mode(module) if hasattr(module, "training") else {}
        print(report.heading(settings.describe() | mode) + "\n", flush=True)


def _moved(options: argparse.Namespace) -> int:
    raise ConfigError(f"{options.name} needs a clone now: python -m verification {options.name}")


if __name__ == "__main__":
    raise SystemExit(main())
