"""Command lines of train.py, tried one after another in one process up to the first update.

All is as when a person types them, but that no framework is imported: where its trainer would be
made there is one that keeps what it is given. So a trial takes milliseconds, and the process shows
how much memory all of them took: `python -m parity_tests.survival.trials < TRIALS > OUTCOMES`, a
JSON value a line.
"""

import contextlib
import io
import json
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import train
from transformer_spec.state import NamedState

BACKENDS = ("jax", "torch", "both")
# A trial takes some 50 ms; one that goes on for so long would never end.
SECONDS = 60
# Far above what frameworkless trials take, and below what would disturb the machine.
ADDRESSES = 6 * 2**30


class Reached(BaseException):
    """The first update would come now. A BaseException: nothing on the way may catch it."""


class Hanging(BaseException):
    """It takes too long."""


class Trainer:
    """Keeps what it is given, and lets no update come."""

    last: "Trainer"

    def __init__(self, model: Any, config: Any):
        self.model, self.config = model, config
        self.weights: dict[str, np.ndarray] = {}
        self.state: NamedState | None = None
        Trainer.last = self

    def load_parameters(self, named: dict[str, np.ndarray]) -> None:
        self.weights = dict(named)

    def load_state(self, state: NamedState) -> None:
        self.state, self.weights = state, state.params

    def named_state(self) -> NamedState:
        raise Reached  # a new run saves it first

    def found(self) -> dict[str, Any]:
        """What the first update would start from."""
        return {
            "model": self.model.to_dict(),
            "train": self.config.to_dict(),
            "step": self.state and self.state.step,
            "weights": {
                name: [str(array.dtype), list(array.shape), array.tobytes().hex()]
                for name, array in sorted(self.weights.items())
            },
        }


def attempt(arguments: list[str]) -> dict[str, Any]:
    """Exit status, output and errors of one command line; status None at its first update."""
    out, err = io.StringIO(), io.StringIO()
    found = None
    sys.argv = ["train.py", *arguments]
    signal.alarm(SECONDS)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = train.main()
        except SystemExit as end:
            status = end.code
        except Reached:
            status, found = None, Trainer.last.found()
        except (Exception, Hanging):
            status = 1
            traceback.print_exc()
    signal.alarm(0)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "found": found}


def highest() -> int:
    """The largest resident size of this process so far, in bytes; 0 where there is no /proc.

    That of getrusage would be the parent's, if that was larger.
    """
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((1024 * int(s.split()[1]) for s in lines if s.startswith("VmHWM")), 0)


def reach(run: train.Run) -> None:
    """In place of the loop of updates."""
    raise Reached


def _hang(*_: object) -> None:
    raise Hanging


def main() -> None:
    # Under its own name, so that there is one class of it.
    from parity_tests.survival import trials

    train.build_trainer = lambda backend, model, config: trials.Trainer(model, config)
    train.Run.train = trials.reach
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    signal.signal(signal.SIGALRM, trials._hang)
    before = None
    for line in sys.stdin:
        outcome = trials.attempt(json.loads(line))
        # The first shows what any takes.
        before = before or highest()
        outcome["grown"] = highest() - before
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
