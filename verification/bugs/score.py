"""How well differences are found: every planted bug caught, located and named; no false alarm.

A bug is planted and everything is looked at, whatever the bug: parameters, the model in float64
forward and backward, the model in bfloat16 and float16, losses, decoder inputs, checkpoints,
update, schedule, dropout, restart and fresh parameters. What is found first is where the bug is
said to be.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from re import search

import jax
import numpy as np
import torch

import flax_transformer
import flax_transformer.training as flax_training
import torch_reference.models as torch_models
import torch_reference.training as torch_training
from parity.explain.causes.evidence import Cause
from parity.explain.causes.parameters import different_parameter
from parity.explain.examine import Reference, examine
from parity.observe.arrays import dtype_name
from parity.observe.points import Recording
from parity.observe.weights import torch_parameters
from transformer_spec import naming, parameters, streams
from transformer_spec.initializers import Scheme
from transformer_spec.presets import PRESETS
from verification.bugs.planted import CASES, Plant
from verification.bugs.rules import RULES, accepted
from verification.stages import (
    accumulation,
    checkpoint,
    decoder_inputs,
    dropout,
    initialization,
    loss,
    narrow,
    optimizer,
    resuming,
    router,
    schedule,
)
from verification.stages.finding import Finding
from verification.twins.draws import draw
from verification.twins.twin_pair import TwinPair

TRAIN = PRESETS["char-gpt"].train
NARROW = ("bfloat16", "float16")
# A loss in float32 from bfloat16 logits: a few units of float32's own rounding.
NARROW_LOSS_TOLERANCE = 1e-6


# One by fan-in and fan-out, one by depth.
SCHEMES: tuple[Scheme, ...] = ("xavier_uniform", "gpt2")


@dataclass(frozen=True)
class Score:
    """What became of one planted bug.

    Args:
        where: what is found first.
        causes: what is said of it.
        accepted: whether each of the rules used elsewhere would have let it pass.
    """

    plant: Plant
    caught: bool
    located: bool
    named: bool
    where: str
    causes: list[Cause] = field(default_factory=list)
    accepted: dict[str, bool] = field(default_factory=dict)


@cache
def _pair(case: str) -> TwinPair:
    found = CASES[case]
    return TwinPair(found.config, found.inputs, chunks=found.chunks)


@cache
def _reference(case: str, dtype: str) -> Reference:
    pair = _pair(case)
    return Reference(pair.flax(pair.params(), dtype))


@cache
def _training_runs(case: str) -> tuple[Recording, Recording]:
    pair = _pair(case)

    def run(seed: int) -> Recording:
        rngs = {"dropout": jax.random.key(seed)}
        options = {"deterministic": False, "rngs": rngs}
        return pair.flax(pair.params(), "float64", options).record()

    return run(0), run(1)


@cache
def _fresh(scheme: Scheme) -> dict[str, np.ndarray]:
    model = flax_transformer.build_model(CASES["deep"].config)
    tree = flax_training.init_params(model, scheme, streams.seed_key(0), "float64")
    return {name: np.asarray(value) for name, value in naming.to_named(tree).items()}


@cache
def _usual_logits(case: str) -> np.ndarray:
    pair = _pair(case)
    run = pair.flax(pair.usual_params(), "float32", gradients=False).record()
    return run.observed["", "output"].arrays[0]


def findings(case: str) -> Iterator[Finding]:
    """All that is found about the twins on a case, as they are now."""
    misfits = [*_shape_findings(_pair(case)), *_dtype_findings(case)]
    yield from misfits or _all_findings(case)


def _all_findings(case: str) -> Iterator[Finding]:
    in_float64 = list(_model_findings(case))
    yield from in_float64
    # What shows in float64 shows in lower precision too.
    for dtype in () if in_float64 else NARROW:
        yield from _narrow_findings(case, dtype)
    yield from loss.compare()
    yield from loss.compare("bfloat16", NARROW_LOSS_TOLERANCE)
    yield from router.compare()
    yield from decoder_inputs.compare()
    yield from checkpoint.compare()
    yield from schedule.compare()
    yield from optimizer.compare(CASES["decoder"].config, TRAIN)
    if CASES[case].config.attn_dropout:
        yield from _dropout_findings(case)
    # A model that differs has other gradients in small batches too, and one that stops has none.
    if not in_float64:
        yield from accumulation.compare(TRAIN)
        yield from resuming.compare(TRAIN)
    yield from _fresh_findings()


def _model_findings(case: str) -> Iterator[Finding]:
    pair, reference = _pair(case), _reference(case, "float64")
    side = pair.torch(pair.params(), "float64")
    yield from dropout.in_evaluation(side.record(), side.record())
    found = examine(reference, side, pair.sizes())
    for name, cause in found.parameters.items():
        yield Finding(f"parameters.{name}", "other values", None, [cause])
    if found.error:
        yield Finding("", found.error, None)
    for fault in found.local_faults:
        detail = " ".join(filter(None, [fault.point, fault.detail]))
        yield Finding(fault.module, detail, fault.error, found.causes[fault.module])
    if found.first_fault and not found.local_faults:
        yield Finding(found.first_fault.module, found.first_fault.point, found.first_fault.error)


def _shape_findings(pair: TwinPair) -> Iterator[Finding]:
    """Parameters of another shape: nothing can be copied, and nothing else compared."""
    model = torch_models.build_model(pair.config)
    theirs = torch_parameters(model)
    for name, shape in parameters.parameter_shapes(pair.config).items():
        if name in theirs and theirs[name].shape != shape:
            cause = different_parameter(name, np.ones(shape), theirs[name], {}, {})
            yield Finding(f"parameters.{name}", "another shape", None, [cause])


def _dtype_findings(case: str) -> Iterator[Finding]:
    """Parameters that do not take the dtype that the model is cast to."""
    model = torch_models.build_model(_pair(case).config).to(torch.bfloat16)
    theirs = {name: dtype_name(p) for name, p in model.named_parameters()}
    yield from narrow.compare_dtypes(dict.fromkeys(theirs, "bfloat16"), theirs)


def _narrow_findings(case: str, dtype: str) -> Iterator[Finding]:
    pair, reference = _pair(case), _reference(case, dtype)
    side = pair.torch(pair.params(), dtype)
    local = side.record_with(reference.substitutes)
    yield from narrow.compare(reference.local_recording, local, reference.parameters, dtype)


def _dropout_findings(case: str) -> Iterator[Finding]:
    pair = _pair(case)
    training = pair.torch(pair.params(), "float64", training=True)
    torch.manual_seed(0)
    yield from dropout.compare(_training_runs(case), (training.record(), training.record()))


def _fresh_findings() -> Iterator[Finding]:
    for scheme in SCHEMES:
        model = torch_models.build_model(CASES["deep"].config).double()
        torch_training.init_params(model, scheme, streams.seed_key(0))
        yield from initialization.compare(_fresh(scheme), torch_parameters(model))


def score(plant: Plant) -> Score:
    """Plant one bug and look for it with everything there is."""
    clean = _usual_logits(plant.case)
    with plant.install():
        found = list(findings(plant.case))
        logits = _torch_logits(plant.case)
    passes = {rule: accepted(rule, clean, logits) for rule in RULES}
    if not found:
        return Score(plant, False, False, False, "nothing found", [], passes)
    here = [f for f in found if f.at == plant.at]
    causes = [cause for f in here for cause in f.causes]
    causes = causes or [cause for f in found for cause in f.causes]
    whole = plant.at.startswith("parameters.")
    located = bool(here) and (whole or found[0].at == plant.at)
    named = any(search(plant.cause, cause.text) for cause in causes)
    where = str(here[0] if here else found[0])
    return Score(plant, True, located, named, where, causes, passes)


def _torch_logits(case: str) -> np.ndarray | None:
    pair = _pair(case)
    try:
        run = pair.torch(pair.usual_params(), "float32").record()
    except ValueError:
        return None
    return run.observed["", "output"].arrays[0] if ("", "output") in run.observed else None


def false_alarms(count: int, first_seed: int = 0) -> Iterator[tuple[int, list[str]]]:
    """(seed, what is wrongly said) of each of `count` correct random pairs."""
    for seed in range(first_seed, first_seed + count):
        drawn = draw(seed)
        pair = TwinPair(drawn.config, drawn.inputs, seed)
        params = pair.params()
        reference = Reference(pair.flax(params, "float64"))
        found = examine(reference, pair.torch(params, "float64"), pair.sizes())
        said = [
            *found.parameters,
            *map(str, found.local_faults),
            *map(str, filter(None, [found.first_fault])),
        ]
        yield seed, said + [str(c) for causes in found.causes.values() for c in causes]
