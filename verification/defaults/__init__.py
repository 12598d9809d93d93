"""Where the defaults of optax and Flax differ from torch's, read from what is installed.

A signature is read where it says the default, and the function is run where it does not.
"""

import argparse
import json
from dataclasses import asdict

import flax
import optax
import torch

from verification.defaults.facts import facts

PAGE = """\
# Defaults

Where optax and Flax do one thing unless told otherwise, and torch another; read from the installed
libraries by `python -m verification defaults --markdown`, which makes this page. None of it decides
anything here: both twins give every argument of their optimizers, and a test fails where one is
left to a default.
"""


def versions() -> str:
    return f"optax {optax.__version__}, flax {flax.__version__}, torch {torch.__version__}"


def page() -> str:
    """The list as a page of Markdown; its last line says what it was read from."""
    rows = [f"| {f.what} | {f.flax} | {f.torch} | {f.here} |" for f in facts()]
    head = "| | optax, Flax | torch | here |\n|---|---|---|---|"
    return "\n".join([PAGE, head, *rows, f"\nRead from {versions()}.", ""])


def run_command(options: argparse.Namespace) -> int:
    if options.markdown:
        print(page(), end="")
    elif options.json:
        found = [asdict(fact) for fact in facts()]
        print(json.dumps({"versions": versions(), "facts": found}, indent=1))
    else:
        lines = (f"{f.what}\n    {f.flax}\n    {f.torch}\n    here: {f.here}" for f in facts())
        print("\n".join([*lines, "", f"read from {versions()}"]).replace("`", ""))
    return 0
