"""`python -m transformer_hub`: look at checkpoints of the hub, import, export."""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

from transformer_hub import (
    FAMILIES,
    Checkpoint,
    CheckpointError,
    Pretrained,
    open_checkpoint,
    open_pretrained,
    save_pretrained,
)
from transformer_hub.errors import explained
from transformer_hub.files import new_directory
from transformer_hub.opening import FLOATS
from transformer_hub.safetensors_files import SINGLE
from transformer_hub.stored import CONFIG
from transformer_spec import parameters
from transformer_training.checkpoints import save_arrays
from transformer_training.command_line import Parser

PROGRAM = "python -m transformer_hub"
DESCRIPTION = f"""\
Checkpoints of the Hugging Face hub as ours, and ours as theirs.

  hf download openai-community/gpt2 --local-dir gpt2    (the hub's own program)
  {PROGRAM} inspect gpt2
  {PROGRAM} import gpt2 imported/gpt2
  {PROGRAM} export imported/gpt2 exported
  python train.py --init-from imported/gpt2 ...    (for a task with its vocabulary)
  {PROGRAM} export runs/... exported --family gpt2

PATH is a directory with a config.json and model.safetensors, pytorch_model.bin (both also in
shards) or flax_model.msgpack, or a GGUF file of a LLaMA. Tokenizers are not read or written.
Families: {", ".join(FAMILIES)}.

Nothing that a file holds is run, and links out of the directory, as in the hub's cache, are not
followed. Exit status 2 with one line for whatever cannot be used.
"""


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        options.run(options)
    except CheckpointError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(f"{PROGRAM}: stopped", file=sys.stderr)
        return 130
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="inspect|import|export")
    show = _command(commands, "inspect", _inspect, "show what a checkpoint holds")
    show.add_argument("path", metavar="PATH", help="of the hub, imported, or a run's directory")
    show.add_argument("--tensors", action="store_true", help="list every stored tensor too")
    read = _command(commands, "import", _import, "write a checkpoint of the hub as ours")
    read.add_argument("path", metavar="PATH", help="a directory or a GGUF file")
    read.add_argument("out", metavar="OUT", help="a new directory")
    read.add_argument("--dtype", choices=FLOATS, help="default: what is stored")
    write = _command(commands, "export", _export, "write a directory that transformers opens")
    write.add_argument("path", metavar="RUN", help="a run's directory, or what was imported")
    write.add_argument("out", metavar="OUT", help="a new directory")
    write.add_argument("--family", choices=FAMILIES, help="default: what it was imported from")
    return parser


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], None], help: str) -> Any:
    command = commands.add_parser(name, help=help, description=help)
    command.set_defaults(run=run)
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
    arrays = _read(checkpoint, options.dtype)
    with explained(directory, SafetensorError, problem="cannot be written"):
        save_arrays(directory / SINGLE, arrays)
        config = {"family": checkpoint.family, "model": checkpoint.config.to_dict()}
        text = json.dumps(config | {"huggingface": checkpoint.hf_config}, indent=2)
        (directory / CONFIG).write_text(text + "\n")
    _saved(directory)


def _export(options: argparse.Namespace) -> None:
    checkpoint = open_checkpoint(options.path)
    family = options.family or checkpoint.family
    if family is None:
        raise CheckpointError(
            f"--family: {options.path} is a run; give one of {', '.join(FAMILIES)}"
        )
    directory = new_directory(options.out)
    arrays = _read(checkpoint)
    pretrained = Pretrained(family, checkpoint.config, arrays, checkpoint.hf_config)
    save_pretrained(directory, pretrained)
    _saved(directory)


def _read(checkpoint: Checkpoint, dtype: str | None = None) -> dict[str, np.ndarray]:
    """All arrays, under a bar where somebody watches."""
    console = Console(stderr=True)
    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    arrays = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=parameters.count(checkpoint.config))
        for name, array in checkpoint.arrays(dtype):
            arrays[name] = array
            progress.advance(bar, array.size)
    return arrays


def _saved(directory: Path) -> None:
    names = ", ".join(sorted(file.name for file in directory.iterdir()))
    print(f"saved in {directory}: {names}")


if __name__ == "__main__":
    raise SystemExit(main())
