"""`python -m transformer_hub`: inspect, import and export checkpoints of the hub."""

import argparse
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from safetensors import SafetensorError

from transformer_hub.checkpoint import FLOATS, Checkpoint, open_checkpoint, open_pretrained
from transformer_hub.errors import CheckpointError, explained
from transformer_hub.families import FAMILIES
from transformer_hub.formats import safetensors_files
from transformer_hub.formats.any_format import CONFIG
from transformer_hub.pretrained import Pretrained, save_pretrained
from transformer_spec import parameters
from transformer_spec.fields import nearest, one_line
from transformer_spec.files import new_directory

PROGRAM = "python -m transformer_hub"
DESCRIPTION = f"""\
Convert checkpoints of the Hugging Face hub to this project's parameters, and back.

  hf download openai-community/gpt2 --local-dir gpt2    (the hub's own program)
  {PROGRAM} inspect gpt2
  {PROGRAM} import gpt2 imported/gpt2
  {PROGRAM} export imported/gpt2 exported
  python train.py --init-from imported/gpt2 ...    (for a task with its vocabulary)
  {PROGRAM} export runs/... exported --family gpt2

PATH is a local directory with a config.json and model.safetensors, pytorch_model.bin (both also in
shards) or flax_model.msgpack, or a GGUF file of a LLaMA. Nothing is downloaded; tokenizers are not
read or written.

{textwrap.fill(f"Families: {', '.join(FAMILIES)}.", 98)}

No code in a file is run, and links out of the directory, as in the hub's cache, are not followed.
What cannot be used is reported in one line, with exit status 2.
"""
INSPECT = """\
Show a checkpoint's family, number of parameters, dtypes, files and architecture. Its tensors are
checked against its config by name and shape; their data is read only where one must be a copy of
another, or from msgpack, which has no index.
"""
IMPORT = """\
Convert a checkpoint of the hub to a directory of this project: config.json and model.safetensors,
with the parameters under our names. train.py --init-from OUT starts from it.
"""
EXPORT = """\
Write config.json and model.safetensors (in shards above 5 GB) such that transformers opens OUT and
computes the same. A training run needs --family: a family whose config can express its model; if
it cannot, the error names the fields that differ.
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports a mistake in one line, with the nearest right word."""

    def __init__(self, **kwargs: Any):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {one_line(message)}; see --help\n")

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        options, unknown = self.parse_known_args(argv)
        if unknown:
            command: Parser = options.parser
            command.error(f"{unknown[0]}: {command.nearest_flag(unknown[0])}")
        return options

    def nearest_flag(self, word: str) -> str:
        if not word.startswith("-"):
            return "one argument too many"
        return f"no such flag; {nearest(word.split('=')[0], self._option_string_actions)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"no {value!r}; {nearest(value, action.choices)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    options = _parser().parse(argv)
    try:
        options.execute(options)
    except CheckpointError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> Parser:
    parser = Parser(prog=PROGRAM, description=DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="inspect|import|export")
    show = _add_command(commands, "inspect", _inspect, "show what a checkpoint holds", INSPECT)
    show.add_argument(
        "path",
        metavar="PATH",
        help="a directory of the hub, an imported one, a run's, or a GGUF file",
    )
    show.add_argument("--tensors", action="store_true", help="list every stored tensor too")
    read = _add_command(commands, "import", _import, "convert a checkpoint to ours", IMPORT)
    read.add_argument("path", metavar="PATH", help="a directory or a GGUF file")
    read.add_argument("out", metavar="OUT", help="a new directory")
    read.add_argument(
        "--dtype",
        choices=FLOATS,
        metavar="|".join(FLOATS),
        help="convert the parameters; default: as they are stored",
    )
    write = _add_command(commands, "export", _export, "write one that transformers opens", EXPORT)
    write.add_argument("path", metavar="RUN", help="a run's directory, or an imported one")
    write.add_argument("out", metavar="OUT", help="a new directory")
    write.add_argument("--family", choices=FAMILIES, metavar="NAME", help="default: as imported")
    return parser


def _add_command(
    commands: Any,
    name: str,
    execute: Callable[[argparse.Namespace], None],
    help: str,
    description: str,
) -> Parser:
    command: Parser = commands.add_parser(name, help=help, description=description)
    command.set_defaults(execute=execute, parser=command)
    return command


def _inspect(options: argparse.Namespace) -> None:
    checkpoint = open_checkpoint(options.path)
    tensors = checkpoint.tensors
    dtypes = Counter(tensor.dtype.name for tensor in tensors.values())
    files = (f"{file.name} {file.stat().st_size:,}" for file in checkpoint.files)
    print(f"family      {checkpoint.family or 'none: a run of this project'}")
    print(f"parameters  {parameters.count(checkpoint.config):,}")
    print(f"tensors     {', '.join(f'{n:,} {dtype}' for dtype, n in dtypes.items())}")
    print(f"bytes       {', '.join(files)}")
    print(f"model       {json.dumps(checkpoint.config.to_dict(), indent=2)}")
    if options.tensors:
        for name, tensor in tensors.items():
            print(f"{name:<60} {tensor.dtype.name:<9} {' x '.join(map(str, tensor.shape))}")


def _import(options: argparse.Namespace) -> None:
    checkpoint = open_pretrained(options.path)
    directory = new_directory(options.out)
    arrays = _read_arrays(checkpoint, options.dtype)
    with explained(directory, SafetensorError, problem="cannot be written"):
        safetensors_files.write(directory, arrays.items())
        config = {"family": checkpoint.family, "model": checkpoint.config.to_dict()}
        text = json.dumps(config | {"huggingface": checkpoint.hf_config}, indent=2)
        (directory / CONFIG).write_text(text + "\n")
    _print_saved(directory)


def _export(options: argparse.Namespace) -> None:
    checkpoint = open_checkpoint(options.path)
    family = options.family or checkpoint.family
    if family is None:
        raise CheckpointError(
            f"--family: {options.path} is a run; give one of {', '.join(FAMILIES)}"
        )
    directory = new_directory(options.out)
    arrays = _read_arrays(checkpoint)
    pretrained = Pretrained(family, checkpoint.config, arrays, checkpoint.hf_config)
    save_pretrained(directory, pretrained)
    _print_saved(directory)


def _read_arrays(checkpoint: Checkpoint, dtype: str | None = None) -> dict[str, np.ndarray]:
    """All arrays, with a progress bar on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    arrays = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=parameters.count(checkpoint.config))
        for name, array in checkpoint.arrays(dtype):
            arrays[name] = array
            progress.advance(bar, array.size)
    return arrays


def _print_saved(directory: Path) -> None:
    names = ", ".join(sorted(file.name for file in directory.iterdir()))
    print(f"saved in {directory}: {names}")


if __name__ == "__main__":
    raise SystemExit(main())
