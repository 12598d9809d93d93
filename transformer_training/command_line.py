"""The trainer's command line: a flag for every field of three dataclasses, one line per mistake."""

import argparse
import dataclasses
import os
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NoReturn

from transformer_hub.checkpoint import open_checkpoint
from transformer_spec import fields, presets
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError, field, nearest
from transformer_spec.files import CheckpointError
from transformer_spec.initializers import DRAWS
from transformer_spec.train_config import TrainConfig
from transformer_training.runs.resuming import CHANGEABLE, stored_config

# The console script of an installed package, or train.py of a clone; and how to type it.
PROGRAM = "transformer-train" if Path(sys.argv[0]).stem == "transformer-train" else "train.py"
COMMAND = "python train.py" if PROGRAM == "train.py" else PROGRAM
BACKENDS = ("jax", "torch", "both")
INSTALL = {
    "jax": "pip install jax flax optax",
    "torch": "pip install torch --index-url https://download.pytorch.org/whl/cpu",
}
DESCRIPTION = f"""\
Train a Transformer in JAX or PyTorch, or in both in lockstep.

  {COMMAND}                                    the sorting study, in jax
  {COMMAND} --backend torch --preset char-gpt  a small GPT, in torch
  {COMMAND} --preset char-gpt --data my.txt --max-seq-len 64
  {COMMAND} --backend both --steps 200         both twins, and how far they differ
  {COMMAND} --norm 'RMSNorm(eps=1e-6)' --ffn GatedFeedForward
  {COMMAND} --init-from runs/... --steps 500   a new run, from the weights of one or of an
                                               imported checkpoint
  {COMMAND} --resume runs/...                  continue a run as if it had never stopped

  python -m transformer_training.curves runs/a runs/b   compare the losses of runs

Defaults below are those of """


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a command line says beside the two configs."""

    backend: Literal["jax", "torch", "both"] = field("framework; both: in lockstep", "jax")
    preset: str = field("model and training to start from; see --list", "sort")
    init_from: str | None = field(
        "directory whose model and weights to start from: of a run, or of a checkpoint of the hub "
        "(python -m transformer_hub --help)",
        None,
    )
    run_dir: str | None = field("directory of the new run; none: a new one under runs/", None)
    resume: str | None = field(
        "directory of a run to resume from its newest whole checkpoint, as if it had never "
        "stopped; its own config counts, and no flag may change what an update computes",
        None,
    )
    stop_after: int | None = field(
        "save and stop after this update, with exit status 0: to train in slices of time", None
    )
    list: bool = field("show the presets and stop", False)
    dry_run: bool = field("show the resolved run and stop", False)
    # No flag: a resumed run keeps that of its first parameters.
    draws: str | None = DRAWS


# Flags that may be given beside --resume.
BESIDE_RESUME = ("backend", "stop_after", "list", "dry_run", *CHANGEABLE)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def fail(error: Exception, status: int = 2) -> NoReturn:
    """Exit with one line on stderr."""
    print(f"{PROGRAM}: error: {error}", file=sys.stderr)
    raise SystemExit(status)


def exit_status(main: Callable[[], int]) -> int:
    """The exit status of `main`, also where Ctrl-C or a closed pipe ends it."""
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


def parse(argv: Sequence[str]) -> tuple[Options, ModelConfig, TrainConfig]:
    """The options, and the configs after all overrides. Exits with 2 on any mistake."""
    try:
        return _parse(argv)
    except (ConfigError, CheckpointError) as error:
        fail(error)


def _parse(argv: Sequence[str]) -> tuple[Options, ModelConfig, TrainConfig]:
    early, _ = _parser({"run": Options()}, add_help=False).parse_known_args(argv)
    options = replace(Options(), **_overrides(Options, early))
    if options.resume is not None:
        source = options.resume
        options, base = _of_run(source, options, "backend" in vars(early))
    else:
        source, base = f"--preset {options.preset}", presets.get(options.preset)
        if options.init_from:
            base = replace(base, model=open_checkpoint(options.init_from).config)
    groups = {"run": Options(), "training": base.train, "model": base.model}
    parser = _parser(
        groups,
        description=DESCRIPTION + source + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given, unknown = parser.parse_known_args(argv)
    _refuse_unknown(unknown, parser)
    if options.resume is not None:
        _check_beside_resume(given)
    check_backend(options.backend)
    check_stop(options.stop_after, 0)
    model = replace(base.model, **_overrides(ModelConfig, given))
    return options, model, replace(base.train, **_one_length(_overrides(TrainConfig, given)))


def _of_run(path: str, options: Options, other_backend: bool) -> tuple[Options, presets.Preset]:
    """What a run was started with; another backend may resume it."""
    stored = stored_config(path)
    for name in ("backend", "preset"):
        fields.check_type(name, stored[name], str)
    model = ModelConfig.from_dict(stored["model"])
    base = presets.Preset("", model, TrainConfig.from_dict(stored["train"]))
    backend = options.backend if other_backend else stored["backend"]
    same = {name: stored[name] for name in ("preset", "init_from")}
    draws = fields.check_type("draws", stored.get("draws"), str | None)
    return replace(options, backend=backend, draws=draws, **same), base


def _check_beside_resume(given: argparse.Namespace) -> None:
    for name in vars(given):
        if name not in ("resume", *BESIDE_RESUME):
            flags = ", ".join(map(_flag, BESIDE_RESUME))
            raise ConfigError(f"{_flag(name)}: cannot change on --resume; what can is {flags}")


def check_stop(stop_after: int | None, done: int) -> None:
    """Refuse to stop after an update that is done already."""
    usable = stop_after is None or stop_after > done
    fields.require(usable, "stop_after", stop_after, f"above {done}, the updates that are done")


def check_backend(backend: str) -> None:
    """Refuse an unknown backend, and one whose framework is not installed."""
    if backend not in BACKENDS:
        raise ConfigError(f"backend: no {backend!r}; {nearest(backend, BACKENDS)}")
    for framework in ("jax", "torch") if backend == "both" else (backend,):
        if find_spec(framework) is None:
            raise ConfigError(f"backend: {framework} is not installed; run: {INSTALL[framework]}")


def _parser(groups: dict[str, Any], **kwargs: Any) -> Parser:
    """A flag for each field of each group's dataclass; flags that are not given leave no trace."""
    parser = Parser(
        prog=PROGRAM,
        usage="%(prog)s [--FLAG VALUE ...]",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        **kwargs,
    )
    for title, config in groups.items():
        group = parser.add_argument_group(title)
        annotations = typing.get_type_hints(type(config))
        for f in (f for f in dataclasses.fields(config) if "help" in f.metadata):
            _add_flag(group, f, annotations[f.name], getattr(config, f.name))
    return parser


def _add_flag(group: Any, f: dataclasses.Field[Any], annotation: Any, default: Any) -> None:
    types = fields.members(annotation)
    words = [*fields.variants(annotation), *fields.choices(annotation)]
    words = words or [t.__name__.upper() for t in types if t in (int, float)] or ["TEXT"]
    shown = str(default).lower() if isinstance(default, bool | None) else default
    is_switch = bool in types
    switch = {"nargs": "?", "const": "true"} if is_switch else {}
    group.add_argument(
        _flag(f.name),
        **switch,
        metavar="true|false" if is_switch else "|".join(words),
        help=f"{f.metadata['help']}; default: {shown}".replace("%", "%%"),
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _refuse_unknown(unknown: list[str], parser: Parser) -> None:
    known = [option for action in parser._actions for option in action.option_strings]
    for word in unknown:
        if not word.startswith("-"):
            raise ConfigError(f"{word}: unexpected; every value follows its flag")
        flag = word.split("=")[0]
        hint = nearest(flag, known)
        hint = hint if hint.startswith("did") else "see --help"
        raise ConfigError(f"{flag}: no such flag; {hint}")


def _overrides(cls: type, given: argparse.Namespace) -> dict[str, Any]:
    """The fields of a dataclass that are given as flags, with values of their types."""
    annotations = typing.get_type_hints(cls)
    return {
        name: fields.parse_value(name, text, annotations[name])
        for name, text in vars(given).items()
        if name in annotations
    }


def _one_length(overrides: dict[str, Any]) -> dict[str, Any]:
    """The length of a run is given in steps or in epochs: one replaces the preset's other."""
    match "steps" in overrides, "epochs" in overrides:
        case True, False:
            return overrides | {"epochs": None}
        case False, True:
            return overrides | {"steps": None}
    return overrides
