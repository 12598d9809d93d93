"""Our twins against an oracle: in float64 as formulas, in float32 as both are run."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parity.judge import precision
from parity.judge.errors import Difference, differences
from parity.judge.precision import Roundings
from transformer_spec.config import ModelConfig
from transformer_spec.parameters import parameter_shapes
from verification.oracles import our_twins, their_models
from verification.oracles.cases import BATCH, CASES, batch
from verification.twins import roundings
from verification.twins.weights import hostile_parameters

Arrays = dict[str, np.ndarray]


class Comparison:
    """One case in float64; each side runs once, when it is first asked for."""

    def __init__(self, name: str):
        self.name, self.case = name, CASES[name]
        self.oracle = their_models.build(self.case)
        self.config = self.oracle.config
        self.weights = hostile(self.config)
        self.batch = batch(self.case)
        self.oracle.fill(self.weights)

    @cached_property
    def theirs(self) -> Arrays:
        return self.oracle.run(self.batch)

    @cached_property
    def flax(self) -> Arrays:
        coefficient = self.case.router_coefficient
        return our_twins.run_flax(self.config, self.weights, self.batch, coefficient)

    @cached_property
    def torch(self) -> Arrays:
        return self.torch_of(self.config)

    def torch_of(self, config: ModelConfig) -> Arrays:
        """What the torch twin of another config computes with the same parameters."""
        return our_twins.run_torch(config, self.weights, self.batch, self.case.router_coefficient)

    def against_theirs(self, found: Arrays) -> list[Difference]:
        """The difference of everything that theirs gives."""
        return differences({name: found[name] for name in self.theirs}, self.theirs)


def hostile(config: ModelConfig, dtype: str = "float64") -> Arrays:
    """Parameters under which mistakes show, as numbers that the dtype holds."""
    named = hostile_parameters(parameter_shapes(config), 0, config.embedding_scale)
    return {name: array.astype(dtype) for name, array in named.items()}


def cost_of_float32(comparison: Comparison) -> dict[str, float]:
    """How far their float32 takes outputs and gradients from float64, where it is left to it.

    Without padding: their masks hold the least float64, which is -inf in a float32 softmax, so that
    a query that sees nothing is NaN, and with it, after one more layer, its whole row.
    """
    case, whole = comparison.case, batch(comparison.case, padded=False)
    oracle = their_models.build_as_it_is(case, "float64")
    oracle.fill(comparison.weights)
    found = oracle.run_as_it_is(whole)
    return worst(differences(found, comparison.oracle.run(whole)))


def cost_of_constants(comparison: Comparison) -> dict[str, float]:
    """The error that each of their constants makes alone which is short of float64."""
    oracle, found = comparison.oracle, {}
    for name in their_models.CUT_SHORT:
        others = their_models.CUT_SHORT.keys() - {name}
        found[name] = oracle.run(comparison.batch, others)
    rounded = their_models.build_as_it_is(comparison.case, "float64")
    rounded.fill(comparison.weights)
    exact = dict(oracle.model.named_buffers())
    tables = [n for n, table in rounded.model.named_buffers() if not table.equal(exact[n])]
    if tables:
        found[f"{', '.join(tables)} rounded to float32"] = rounded.run(comparison.batch)
    errors = {name: comparison.against_theirs(arrays) for name, arrays in found.items()}
    return {name: max(worst(e).values()) for name, e in errors.items() if max(worst(e).values())}


def worst(found: list[Difference]) -> dict[str, float]:
    """The largest error of each kind: output, parameter."""
    errors: dict[str, float] = {}
    for d in found:
        kind = d.name.split(".")[0]
        errors[kind] = max(errors.get(kind, 0.0), d.error)
    return errors


@dataclass(frozen=True)
class Float32:
    """Both sides' error in one value against the float64 truth, and what theory adds to twice."""

    name: str
    theirs: float
    ours: float
    floor: float

    @property
    def within_tolerance(self) -> bool:
        theirs_is = precision.within_tolerance(self.theirs, self.ours, self.floor)
        return theirs_is and precision.within_tolerance(self.ours, self.theirs, self.floor)


def in_float32(name: str) -> list[Float32]:
    """Their code as it is and the torch twin, by the rule of `parity.judge.precision`.

    The truth is the torch twin in float64 on the same rounded numbers.
    """
    case = CASES[name]
    oracle = their_models.build_as_it_is(case, "float32")
    config, given = oracle.config, batch(case)
    weights = hostile(config, "float32")
    given = {k: v.astype(np.float32) if v.dtype == float else v for k, v in given.items()}
    oracle.fill(weights)
    found = oracle.run_as_it_is(given)
    runs = [
        our_twins.run_torch(config, _as(weights, dtype), _as(given, dtype), case.router_coefficient)
        for dtype in ("float32", "float64")
    ]
    twin, truth = ({n: run[n] for n in found} for run in runs)
    keys = max(case.length, case.source)
    forward = roundings.model(config, keys)
    floors = {
        "output": precision.rounding_floor("float32", forward),
        "parameter": precision.rounding_floor("float32", forward * 3 + Roundings(BATCH * keys)),
    }
    pairs = zip(differences(found, truth), differences(twin, truth), strict=True)
    return [Float32(a.name, a.error, b.error, floors[a.name.split(".")[0]]) for a, b in pairs]


def _as(arrays: Arrays, dtype: str) -> Arrays:
    return {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in arrays.items()}
