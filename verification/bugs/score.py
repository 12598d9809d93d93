"""How well differences are found: every seeded bug caught, located and named; no false alarm.

A bug is seeded and everything is compared, whatever the bug: parameters, the model in float64
forward and backward, the model in bfloat16 and float16, losses, decoder inputs, checkpoints,
update, schedule, dropout, restart and initial parameters. The first difference found is where the
bug is said to be.
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
from verification.bugs.cases import CASES
from verification.bugs.rules import RULES, accepted
from verification.bugs.seeded_bug import SeededBug
from verification.stages import (
    accumulation,
    checkpoint,
    decoder_inputs,
    dropout,
    initialization,
    loss,
    low_precision,
    optimizer,
    restart,
    router,
    schedule,
)
from verification.stages.finding import Finding
from verification.twins.random_architectures import draw_architecture
from verification.twins.twin_pair import TwinPair

TRAIN = PRESETS["char-gpt"].train
NARROW = ("bfloat16", "float16")
# A loss in float32 from bfloat16 logits: a few units of float32's own rounding.
NARROW_LOSS_TOLERANCE = 1e-6


# One by fan-in and fan-out, one by depth.
SCHEMES: tuple[Scheme, ...] = ("xavier_uniform", "gpt2")


@dataclass(frozen=True)
class Score:
    """How one seeded bug fared.

    Args:
        where: the first difference.
        causes: what explains it.
        accepted: whether each of the rules used elsewhere would have let it pass.
    """

    bug: SeededBug
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
def _initial_parameters(scheme: Scheme) -> dict[str, np.ndarray]:
    model = flax_transformer.build_model(CASES["deep"].config)
    tree = flax_training.init_params(model, scheme, streams.seed_key(0), "float64")
    return {name: np.asarray(value) for name, value in naming.to_named(tree).items()}


@cache
def _usual_logits(case: str) -> np.ndarray:
    pair = _pair(case)
    run = pair.flax(pair.usual_params(), "float32", gradients=False).record()
    return run.observed["", "output"].arrays[0]


def find_differences(case: str) -> Iterator[Finding]:
    """Every difference between the twins on a case, as they are now."""
    misfits = [*_shape_findings(_pair(case)), *_dtype_findings(case)]
    yield from misfits or _findings(case)


def _findings(case: str) -> Iterator[Finding]:
    in_float64 = list(_model_findings(case))
    yield from in_float64
    # What shows in float64 shows in lower precision too.
    for dtype in () if in_float64 else NARROW:
        yield from _low_precision_findings(case, dtype)
    yield from loss.compare_losses()
    yield from loss.compare_losses("bfloat16", NARROW_LOSS_TOLERANCE)
    yield from router.compare_router_losses()
    yield from decoder_inputs.compare_decoder_inputs()
    yield from checkpoint.compare_checkpoints()
    yield from schedule.compare_schedules()
    yield from optimizer.compare_updates(CASES["decoder"].config, TRAIN)
    if CASES[case].config.attn_dropout:
        yield from _dropout_findings(case)
    # A model that differs has other gradients in small batches too, and one that stops has none.
    if not in_float64:
        yield from accumulation.compare_accumulation(TRAIN)
        yield from restart.compare_restarts(TRAIN)
    yield from _initialization_findings()


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
    yield from low_precision.compare_dtypes(dict.fromkeys(theirs, "bfloat16"), theirs)


def _low_precision_findings(case: str, dtype: str) -> Iterator[Finding]:
    pair, reference = _pair(case), _reference(case, dtype)
    side = pair.torch(pair.params(), dtype)
    local = side.record_with(reference.substitutes)
    yield from low_precision.compare_low_precision(
        reference.local_recording, local, reference.parameters, dtype
    )


def _dropout_findings(case: str) -> Iterator[Finding]:
    pair = _pair(case)
    training = pair.torch(pair.params(), "float64", training=True)
    torch.manual_seed(0)
    yield from dropout.compare_dropout(_training_runs(case), (training.record(), training.record()))


def _initialization_findings() -> Iterator[Finding]:
    for scheme in SCHEMES:
        model = torch_models.build_model(CASES["deep"].config).double()
        torch_training.init_params(model, scheme, streams.seed_key(0))
        yield from initialization.compare_initialization(
            _initial_parameters(scheme), torch_parameters(model)
        )


def score_bug(bug: SeededBug) -> Score:
    """Seed one bug and compare everything there is."""
    clean = _usual_logits(bug.case)
    with bug.install():
        found = list(find_differences(bug.case))
        logits = _torch_logits(bug.case)
    passes = {rule: accepted(rule, clean, logits) for rule in RULES}
    if not found:
        return Score(bug, False, False, False, "nothing found", [], passes)
    here = [f for f in found if f.at == bug.at]
    causes = [cause for f in here for cause in f.causes]
    causes = causes or [cause for f in found for cause in f.causes]
    whole = bug.at.startswith("parameters.")
    located = bool(here) and (whole or found[0].at == bug.at)
    named = any(search(bug.cause, cause.text) for cause in causes)
    where = str(here[0] if here else found[0])
    return Score(bug, True, located, named, where, causes, passes)


def _torch_logits(case: str) -> np.ndarray | None:
    pair = _pair(case)
    try:
        run = pair.torch(pair.usual_params(), "float32").record()
    except ValueError:
        return None
    return run.observed["", "output"].arrays[0] if ("", "output") in run.observed else None


def false_alarms(count: int, first_seed: int = 0) -> Iterator[tuple[int, list[str]]]:
    """(seed, differences wrongly reported) of each of `count` correct random pairs."""
    for seed in range(first_seed, first_seed + count):
        drawn = draw_architecture(seed)
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
