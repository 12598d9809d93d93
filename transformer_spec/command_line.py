"""The trainer's command line: a flag for every field, one line for every mistake."""

import argparse
import dataclasses
import json
import sys
import typing
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NoReturn

from transformer_spec import fields, parameters, presets
from transformer_spec.config import ModelConfig
from transformer_spec.experiment import TrainConfig
from transformer_spec.fields import ConfigError, nearest
from transformer_spec.huggingface.errors import CheckpointError
from transformer_spec.huggingface.opening import open_checkpoint
from transformer_spec.presets import PRESETS
from transformer_spec.tasks.task import Task

BACKENDS = ("jax", "torch", "both")
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
  python train.py --init-from runs/... --steps 500  go on from a run, or from an imported checkpoint

Defaults below are those of --preset {preset}.
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def fail(error: Exception) -> NoReturn:
    """One line on stderr, exit status 2."""
    print(f"train.py: error: {error}", file=sys.stderr)
    raise SystemExit(2)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, ModelConfig, TrainConfig]:
    """The options, and the configs after all overrides. Exits with 2 on any mistake."""
    try:
        early = _base_parser(add_help=False).parse_known_args(argv)[0]
        preset = presets.get(early.preset)
        if early.init_from:
            preset = replace(preset, model=open_checkpoint(early.init_from).config)
        parser = _full_parser(early.preset, preset)
        options, unknown = parser.parse_known_args(argv)
        _refuse_unknown(unknown, parser)
        check_backend(options.backend)
        model = replace(preset.model, **_overrides(options, ModelConfig))
        train = _overridden(preset.train, _overrides(options, TrainConfig))
        return options, model, train
    except (ConfigError, CheckpointError) as error:
        fail(error)


def check_backend(backend: str) -> None:
    """Refuse an unknown backend, and one whose framework is not installed."""
    if backend not in BACKENDS:
        raise ConfigError(f"backend: no {backend!r}; {nearest(backend, BACKENDS)}")
    for framework in ("jax", "torch") if backend == "both" else (backend,):
        if find_spec(framework) is None:
            raise ConfigError(f"backend: {framework} is not installed; run: {INSTALL[framework]}")


def list_presets() -> str:
    """One line per preset: sizes and parameters."""
    rows = [f"{'preset':<18}{'parameters':>14}  {'layers':<7}{'d_model':>7}{'d_ff':>6}{'heads':>6}"]
    for name, preset in PRESETS.items():
        m = preset.model
        layers = "+".join(str(n) for n in (m.num_layers, m.num_decoder_layers) if n)
        rows.append(
            f"{name:<18}{parameters.count(m):>14,}  {layers:<7}{m.d_model:>7}{m.d_ff:>6}"
            f"{m.num_heads:>6}  {preset.summary}"
        )
    return "\n".join(rows)


def describe(options: argparse.Namespace, train: TrainConfig, task: Task) -> str:
    """What --dry-run prints: the resolved config, parameters, memory and tokens per step."""
    config = resolved(options, task, train)
    count = parameters.count(task.model)
    size = {"float32": 4, "float64": 8}[train.dtype]
    batch = task.train_batch(1)
    total = train.total_steps(task.steps_per_epoch)
    return "\n".join(
        [
            json.dumps(config, indent=2),
            f"parameters      {count:,}",
            f"memory          {4 * count * size / 2**20:,.1f} MiB for parameters, gradients and "
            "two Adam moments; activations come on top",
            f"tokens per step {batch.num_tokens():,}, {int(batch.label_mask.sum()):,} scored",
            f"updates         {total:,} ({task.steps_per_epoch:,} to an epoch)",
        ]
    )


def resolved(options: argparse.Namespace, task: Task, train: TrainConfig) -> dict[str, Any]:
    """All that is needed to repeat a run and to read what its model writes, as JSON values."""
    return {
        "backend": options.backend,
        "preset": options.preset,
        "init_from": options.init_from,
        "model": task.model.to_dict(),
        "train": train.to_dict(),
        "tokenizer": task.tokenizer and task.tokenizer.to_dict(),
    }


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
    checkpoint += "python -m transformer_spec.huggingface --help"
    run.add_argument("--init-from", metavar="DIR", help=checkpoint)
    run.add_argument("--run-dir", metavar="DIR", help="default: a new one under runs/")
    run.add_argument("--list", action="store_true", help="show the presets and stop")
    run.add_argument("--dry-run", action="store_true", help="show the resolved run and stop")
    return parser


def _full_parser(name: str, preset: presets.Preset) -> Parser:
    parser = _base_parser(description=DESCRIPTION.format(preset=name))
    for title, config in (("training", preset.train), ("model", preset.model)):
        group = parser.add_argument_group(title)
        annotations = typing.get_type_hints(type(config))
        for f in dataclasses.fields(config):
            _add_flag(group, f, annotations[f.name], getattr(config, f.name))
    return parser


def _add_flag(group: Any, f: dataclasses.Field, annotation: Any, default: Any) -> None:
    options = [*fields.variants(annotation), *fields.choices(annotation)]
    flag = f"--{f.name.replace('_', '-')}"
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
