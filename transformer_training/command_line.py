"""The trainer's command line: a flag for every field, one line for every mistake."""

import argparse
import dataclasses
import os
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NoReturn

from transformer_hub.checkpoint import open_checkpoint
from transformer_hub.errors import CheckpointError
from transformer_spec import fields, presets
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError, nearest
from transformer_spec.initializers import DRAWS
from transformer_spec.train_config import TrainConfig
from transformer_training.runs.resuming import FREE, stored_config

BACKENDS = ("jax", "torch", "both")
# The flags that stand beside --resume.
RETURNING = ("resume", "backend", "stop_after", "list", "dry_run", *FREE)
INSTALL = {
    "jax": "pip install jax flax optax",
    "torch": "pip install torch --index-url https://download.pytorch.org/whl/cpu",
}
DESCRIPTION = """\
Train a Transformer in JAX or PyTorch, or in both in lockstep.

  python train.py                                   the sorting study, in jax
  python train.py --backend torch --preset char-gpt a small GPT, in torch
  python train.py --preset char-gpt --data my.txt --max-seq-len 64
  python train.py --backend both --steps 200        both twins, and how far apart they are
  python train.py --norm 'RMSNorm(eps=1e-6)' --ffn GatedFeedForward
  python train.py --init-from runs/... --steps 500  a new run, from the weights of one or of a
                                                    checkpoint that was imported
  python train.py --resume runs/...                 go on with a run as if it had never stopped

Defaults below are those of {source}.
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def fail(error: Exception, status: int = 2) -> NoReturn:
    """One line on stderr, and the exit status of a mistake."""
    print(f"train.py: error: {error}", file=sys.stderr)
    raise SystemExit(status)


def exit_status(main: Callable[[], int]) -> int:
    """That of a program that Ctrl-C ends, or whose output nobody reads to its end."""
    try:
        try:
            return main()
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("interrupted", file=sys.stderr, flush=True)
        # Not by way of Python's own end, which waits for the save in flight, where a third Ctrl-C
        # makes a traceback, and where a framework crashes whose import was cut off.
        os._exit(130)
    except BrokenPipeError:
        # Else Python would try once more to write what is left, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, ModelConfig, TrainConfig]:
    """The options, and the configs after all overrides. Exits with 2 on any mistake."""
    try:
        early = _base_parser(add_help=False).parse_known_args(argv)[0]
        if early.resume is not None:
            return _parse_resume(argv, early.resume)
        preset = presets.get(early.preset)
        if early.init_from:
            preset = replace(preset, model=open_checkpoint(early.init_from).config)
        return _parse(argv, f"--preset {early.preset}", preset)
    except (ConfigError, CheckpointError) as error:
        fail(error)


def _parse(
    argv: Sequence[str], source: str, preset: presets.Preset
) -> tuple[argparse.Namespace, ModelConfig, TrainConfig]:
    parser = _full_parser(source, preset)
    options, unknown = parser.parse_known_args(argv)
    _refuse_unknown(unknown, parser)
    check_backend(options.backend)
    options.draws = DRAWS
    options.stop_after = fields.parse_value("stop_after", options.stop_after, int | None)
    check_stop(options.stop_after, 0)
    model = replace(preset.model, **_overrides(options, ModelConfig))
    return options, model, _overridden(preset.train, _overrides(options, TrainConfig))


def _parse_resume(
    argv: Sequence[str], path: str
) -> tuple[argparse.Namespace, ModelConfig, TrainConfig]:
    """What a run was begun with, and the few flags that may differ on its return."""
    stored = stored_config(path)
    for name in ("backend", "preset"):
        fields.check_type(name, stored[name], str)
    model = ModelConfig.from_dict(stored["model"])
    preset = presets.Preset("", model, TrainConfig.from_dict(stored["train"]))
    given = _given(argv, _full_parser(path, preset))
    for name in given:
        if name not in RETURNING:
            flags = ", ".join(_flag(free) for free in RETURNING if free != "resume")
            raise ConfigError(f"{_flag(name)}: cannot change on --resume; what can is {flags}")
    if "backend" not in given:
        argv = [*argv, "--backend", stored["backend"]]
    options, model, train = _parse(argv, path, preset)
    options.preset, options.init_from = stored["preset"], stored["init_from"]
    options.draws = fields.check_type("draws", stored.get("draws"), str | None)
    return options, model, train


def _given(argv: Sequence[str], parser: Parser) -> list[str]:
    """The names of the flags that stand on the command line."""
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return list(vars(parser.parse_known_args(argv)[0]))


def check_stop(stop_after: int | None, done: int) -> None:
    """Refuse an end before the first update that is to come."""
    usable = stop_after is None or stop_after > done
    fields.require(usable, "stop_after", stop_after, f"above {done}, the updates that are done")


def check_backend(backend: str) -> None:
    """Refuse an unknown backend, and one whose framework is not installed."""
    if backend not in BACKENDS:
        raise ConfigError(f"backend: no {backend!r}; {nearest(backend, BACKENDS)}")
    for framework in ("jax", "torch") if backend == "both" else (backend,):
        if find_spec(framework) is None:
            raise ConfigError(f"backend: {framework} is not installed; run: {INSTALL[framework]}")


def _base_parser(**kwargs: Any) -> Parser:
    parser = Parser(
        prog="train.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **kwargs,
    )
    run = parser.add_argument_group("run")
    run.add_argument("--backend", default="jax", metavar="|".join(BACKENDS), help="default: jax")
    run.add_argument("--preset", default="sort", metavar="NAME", help="default: sort; see --list")
    checkpoint = "model and weights to start from: a run's directory, or one of the hub, see "
    checkpoint += "python -m transformer_hub --help"
    run.add_argument("--init-from", metavar="DIR", help=checkpoint)
    run.add_argument("--run-dir", metavar="DIR", help="default: a new one under runs/")
    last = "directory of a run to go on with, from its newest whole checkpoint, as if it had never "
    last += "stopped; its own config counts, and no flag may change what an update computes"
    run.add_argument("--resume", metavar="DIR", help=last)
    slices = "save and end after update N, with exit status 0: for slices of time; default: none"
    run.add_argument("--stop-after", metavar="N", default="none", help=slices)
    run.add_argument("--list", action="store_true", help="show the presets and stop")
    run.add_argument("--dry-run", action="store_true", help="show the resolved run and stop")
    return parser


def _full_parser(source: str, preset: presets.Preset) -> Parser:
    parser = _base_parser(description=DESCRIPTION.format(source=source))
    for title, config in (("training", preset.train), ("model", preset.model)):
        group = parser.add_argument_group(title)
        annotations = typing.get_type_hints(type(config))
        for f in dataclasses.fields(config):
            _add_flag(group, f, annotations[f.name], getattr(config, f.name))
    return parser


def _add_flag(group: Any, f: dataclasses.Field, annotation: Any, default: Any) -> None:
    options = [*fields.variants(annotation), *fields.choices(annotation)]
    flag = _flag(f.name)
    shown = str(default).lower() if isinstance(default, bool | None) else default
    is_switch = bool in fields.members(annotation)
    switch = {"nargs": "?", "const": "true"} if is_switch else {}
    group.add_argument(
        flag,
        default=argparse.SUPPRESS,
        **switch,
        metavar="true|false" if is_switch else "|".join(options) or f.name.upper(),
        help=f"{f.metadata['help']}; default: {shown}".replace("%", "%%"),
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _refuse_unknown(unknown: list[str], parser: Parser) -> None:
    known = [option for action in parser._actions for option in action.option_strings]
    for word in unknown:
        if word.startswith("-"):
            flag = word.split("=")[0]
            raise ConfigError(f"{flag}: no such flag; {_nearest_flag(flag, known)}")
        raise ConfigError(f"{word}: unexpected; every value follows its flag")


def _nearest_flag(flag: str, known: list[str]) -> str:
    hint = nearest(flag, known)
    return hint if hint.startswith("did") else "see --help"


def _overrides(options: argparse.Namespace, cls: type) -> dict[str, Any]:
    annotations = typing.get_type_hints(cls)
    given = {f.name: getattr(options, f.name, None) for f in dataclasses.fields(cls)}
    return {
        name: fields.parse_value(name, text, annotations[name])
        for name, text in given.items()
        if text is not None
    }


def _overridden(train: TrainConfig, overrides: dict[str, Any]) -> TrainConfig:
    """`train` with the overrides; the length of a run is given in steps or in epochs."""
    if "steps" in overrides and "epochs" not in overrides:
        overrides = overrides | {"epochs": None}
    if "epochs" in overrides and "steps" not in overrides:
        overrides = overrides | {"steps": None}
    return replace(train, **overrides)
