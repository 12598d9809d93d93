"""Golden runs: the loss and the gradient norm of each of 200 updates, for any implementation.

`sort.json` and `char-gpt.json` beside this file hold two whole trainings of those presets, in
float64 with dropout off, and all it takes to repeat them with NumPy alone:

    run = golden.load("char-gpt")
    run.model, run.train              # sizes and slots; optimizer, schedule, clipping, smoothing
    run.initial_parameters()          # name -> float64 array, a weight is [out, in]
    run.batch(1), run.learning_rate(1)    # of update 1, 2, ... 200
    run.losses[0], run.grad_norms[0]  # of update 1: before it, the norm before clipping
    run.bounds[0]                     # how far another implementation's may be, relative

Initial parameters: of each name (`transformer_spec.parameters` has them all) a stream of its own,

    np.random.default_rng([seed, number])

which is PCG64, with the run's seed and, as number, the first four bytes, the high one first, of the
SHA-1 of the name's parts joined, "layers.0" being one part "layers_0": of "lm_headweight", or of
"decoderlayers_0attnq_projweight". From it U(-b, b) is b (2 u - 1) with u = rng.random(shape), and
N(0, s**2) is s rng.standard_normal(shape); b and s are those that `transformer_spec.initializers`
has for the preset's scheme.

The data of `sort` is drawn by NumPy too. That of `char-gpt` is `numbers.txt`: zero to nine hundred
and ninety-nine in words, one a line. CPython's documentation, the preset's own data, is another in
every release.

Losses are those of the Flax twin, written with all digits; `python -m verification golden` compares
both twins with them.

How close another implementation comes is a matter of the run as much as of the implementation:
what one operation rounds away, later updates enlarge. So the run was repeated six times, each time
with every initial parameter moved to the next float64 above or below it, the least change there is,
and `roundings` has how far those were off. `sort` has learned its task by update 125 and is steered
from there on by the few tokens it still gets wrong: 1.3e-14 becomes 5.5e-10 by update 200.
`char-gpt` stays at 1.5e-14. An implementation rounds not once but in every operation: along a path
of n the errors add up as sqrt(n), and no path through an update has more than some 1,000 here, so
that `bounds` are 32 times the roundings. A mistake shows in the first updates, at 1e-14.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transformer_spec import initializers, schedules, streams
from transformer_spec.batch import Batch
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError, nearest
from transformer_spec.naming import linen_path
from transformer_spec.parameters import parameter_shapes
from transformer_spec.train_config import TrainConfig
from transformer_training.tasks import Task, make_task
from transformer_training.tasks.task import fingerprint
from transformer_training.trainer import Trainer

FOLDER = Path(__file__).parent
NAMES = ("sort", "char-gpt")
# The square root of the roundings along the longest path through an update; the module says why.
PATH = 32
Named = dict[str, np.ndarray]


@dataclass(frozen=True)
class GoldenRun:
    """A golden run.

    Args:
        losses: of each update's batch before the update, of natural logarithms, per token.
        grad_norms: of the whole gradient, before it is clipped.
        roundings: the largest relative difference, up to each update, of runs that began at
            neighbouring parameters.
        versions: what the losses were measured with.
    """

    model: ModelConfig
    train: TrainConfig
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()
    roundings: tuple[float, ...] = ()
    fingerprints: Mapping[str, str] | None = None
    versions: Mapping[str, str] | None = None

    @property
    def updates(self) -> int:
        return self.train.total_steps(1)

    @property
    def bounds(self) -> tuple[float, ...]:
        """Of each update: how far a loss or norm may be, relative to the one here."""
        return tuple(PATH * rounding for rounding in self.roundings)

    @cached_property
    def task(self) -> Task:
        return make_task(self.model, self.train)

    def initial_parameters(self) -> Named:
        """Fresh float64 arrays; the module says how they are drawn."""
        shapes = parameter_shapes(self.model)
        return {name: self._drawn(name, shapes) for name in shapes}

    def _drawn(self, name: str, shapes: dict[str, tuple[int, ...]]) -> np.ndarray:
        rng = np.random.default_rng([self.train.seed, streams.number(*linen_path(name))])
        match initializers.distribution(self.train.init, name, shapes, self.model):
            case initializers.Fill(value):
                return np.full(shapes[name], value)
            case initializers.Uniform(bound):
                return bound * (2 * rng.random(shapes[name]) - 1)
            case initializers.Normal(std):
                return std * rng.standard_normal(shapes[name])
            case initializers.TruncatedNormal():
                raise ConfigError(f"init: no known run draws from {self.train.init}")

    def batch(self, update: int) -> Batch:
        """That of update 1, 2, ..."""
        return self.task.train_batch(update)

    def learning_rate(self, update: int) -> float:
        """That of update 1, 2, ..."""
        return schedules.learning_rate(
            self.train.schedule,
            update,
            peak=self.train.learning_rate,
            d_model=self.model.d_model,
            total_steps=self.updates,
        )

    def moved_parameters(self, seed: int) -> Named:
        """The initial ones, each moved to the next float64 above or below, as the seed has it."""
        rng = np.random.default_rng(seed)
        named = self.initial_parameters()
        ends = {name: rng.choice((-np.inf, np.inf), array.shape) for name, array in named.items()}
        return {name: np.nextafter(array, ends[name]) for name, array in named.items()}

    def replay(
        self, trainer: Trainer, updates: int | None = None, start: Named | None = None
    ) -> Iterator[tuple[float, float]]:
        """(loss, gradient norm) of each update of a Trainer, from the initial parameters on."""
        trainer.load_parameters(self.initial_parameters() if start is None else start)
        for update in range(1, (updates or self.updates) + 1):
            metrics = trainer.train(self.batch(update), self.learning_rate(update))
            yield float(metrics["loss"]), float(metrics["grad_norm"])

    def drawn_fingerprints(self) -> dict[str, str]:
        """Of the initial parameters, to seven digits, and of all batches, as drawn here."""
        named = self.initial_parameters()
        batches = [self.batch(update) for update in range(1, self.updates + 1)]
        arrays = [a for b in batches for a in (*b.inputs.values(), b.labels, b.label_mask)]
        return {
            "parameters": fingerprint(*(named[n].astype(np.float32) for n in sorted(named))),
            "batches": fingerprint(*arrays),
        }

    def to_dict(self) -> dict[str, Any]:
        train = self.train.to_dict()
        return {
            "about": "losses and gradient norms of a known run; see verification/golden",
            "versions": self.versions,
            "model": self.model.to_dict(),
            "train": train | {"data": train["data"] and Path(train["data"]).name},
            "fingerprints": self.fingerprints,
            "losses": self.losses,
            "grad_norms": self.grad_norms,
            "roundings": self.roundings,
        }


def check_name(name: str) -> None:
    """Refuse a name that no golden run has."""
    if name not in NAMES:
        raise ConfigError(f"golden: no golden run of {name!r}; {nearest(name, NAMES)}")


def load(name: str) -> GoldenRun:
    """The golden run of a preset.

    Raises:
        ConfigError: there is none, or this NumPy draws other numbers than the run was made from.
    """
    check_name(name)
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    train = data["train"]
    text = train["data"] and str(FOLDER / train["data"])
    run = GoldenRun(
        ModelConfig.from_dict(data["model"]),
        TrainConfig.from_dict(train | {"data": text}),
        tuple(data["losses"]),
        tuple(data["grad_norms"]),
        tuple(data["roundings"]),
        data["fingerprints"],
        data["versions"],
    )
    drawn = run.drawn_fingerprints()
    for part, expected in data["fingerprints"].items():
        if drawn[part] != expected:
            raise ConfigError(
                f"golden: NumPy {np.__version__} draws other {part} for {name} than "
                f"NumPy {data['versions']['numpy']} did"
            )
    return run
