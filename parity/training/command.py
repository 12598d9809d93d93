"""The command line: `python -m parity train-step`."""

import argparse
import json
import sys
from collections.abc import Sequence

from parity import loading
from parity.observe import settings
from parity.observe.settings import NotComparableError
from parity.training.train_step import UPDATES, train_step

DESCRIPTION = """\
torch() returns (module, optimizer, function[, scheduler]); function(module, batch) returns the
loss, or does the whole step where it calls optimizer.step(). jax() returns (parameters, optax
transformation, loss), with loss(parameters, batch), or (state, step), with step(state, batch). For
the optimizers alone: (make, tensors by name), where make(list of tensors) returns the optimizer or
(optimizer, scheduler), and (transformation, parameters).

Exit status: 0 equal, 1 different, 2 could not compare.
"""


def main(words: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="parity train-step", description=DESCRIPTION, formatter_class=raw, allow_abbrev=False
    )
    parser.add_argument("torch", metavar="FILE.py:FUNCTION", help="returns the torch training")
    parser.add_argument("jax", metavar="FILE.py:FUNCTION", help="returns the JAX training")
    parser.add_argument("--batches", metavar="FILE.py:FUNCTION", help="returns a list of batches")
    parser.add_argument("--rename", action="append", default=[], metavar="JAX=TORCH")
    parser.add_argument("--reference", default="torch", choices=["torch", "jax"])
    parser.add_argument(
        "--updates", type=int, default=UPDATES, help="of the optimizers alone; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(list(words))
    settings.make_comparable()
    try:
        result = train_step(
            loading.call_target(options.torch),
            loading.call_target(options.jax),
            loading.call_target(options.batches) if options.batches else None,
            renames=loading.parse_renames(options.rename),
            reference=options.reference,
            updates=options.updates,
        )
    except NotComparableError as error:
        print(f"parity: could not compare: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result.to_dict(), indent=1) if options.json else result)
    return 0 if result.equal else 1
