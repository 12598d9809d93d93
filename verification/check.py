"""Our own twins compared with each other: a preset at full size, on hostile weights."""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import flax_transformer
import torch_reference
from flax_transformer import training as flax_training
from parity.observe import settings
from parity.observe.settings import NotComparableError
from torch_reference import training as torch_training
from transformer_spec import parameters, presets
from transformer_spec.config import ModelConfig, PrefixLM
from transformer_spec.fields import ConfigError
from transformer_spec.schedules import learning_rate
from transformer_training.lockstep import Lockstep
from transformer_training.tasks import make_task
from verification.module_view.comparison import compare
from verification.module_view.report import Result, heading
from verification.twins.small_presets import without_dropout
from verification.twins.twin_pair import TwinPair

BATCH, LENGTH, KEYS = 2, 11, 7
TRAINING_TOLERANCE = 1e-10
Report = Callable[[int, dict[str, float]], None]


def check_preset(
    preset: str, dtype: str = "float64", gradients: bool = False, seed: int = 0
) -> Result:
    """Every value, and with `gradients` every gradient, of a preset's twins.

    Raises:
        ConfigError: there is no such preset, or this machine cannot hold it.
    """
    config = without_dropout(presets.get(preset).model)
    _refuse_too_large(preset, config, gradients)
    pair = TwinPair(config, example_inputs(config, seed), seed)
    return compare(
        torch_reference.build_model(config).eval(),
        flax_transformer.build_model(config),
        {"params": pair.params(kink=dtype == "float64")},
        pair.inputs,
        dtype=dtype,
        gradients=gradients,
        reference="flax",
        sizes=pair.sizes(),
    )


def _refuse_too_large(preset: str, config: ModelConfig, gradients: bool) -> None:
    """Both twins hold every parameter in float64, and its gradient where those are asked for."""
    needed = 2 * 8 * parameters.count(config) * (2 if gradients else 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"preset: {preset} needs {needed / 1e9:,.0f} GB in float64, this machine has "
            f"{memory / 1e9:,.0f} GB; choose one of fewer parameters (train.py --list)"
        )


def example_inputs(config: ModelConfig, seed: int) -> dict[str, np.ndarray]:
    """Random ids, with padding on the left of one row and on the right of the other."""
    rng = np.random.default_rng([seed, 41])
    length = min(LENGTH, config.max_seq_len)

    def ids(width: int) -> np.ndarray:
        return rng.integers(0, config.vocab_size, (BATCH, width))

    def mask(width: int) -> np.ndarray:
        at = np.arange(width)
        return np.stack([at >= min(2, width - 1), at < max(width - 3, 1)])

    if config.arch != "encoder_decoder":
        inputs = {"tokens": ids(length), "token_mask": mask(length)}
        if config.num_token_types:
            inputs["token_types"] = rng.integers(0, config.num_token_types, (BATCH, length))
        if isinstance(config.mask, PrefixLM):
            inputs["prefix_mask"] = np.arange(length) < np.array([[length // 2], [length // 3]])
        return inputs
    keys = min(KEYS, config.max_seq_len)
    return {
        "source": ids(keys),
        "target": ids(length),
        "source_mask": mask(keys),
        "target_mask": mask(length),
    }


def check_steps(preset: str, dtype: str, steps: int, report: Report) -> dict[str, float]:
    """The largest differences over `steps` updates of both twins from the same weights.

    Args:
        dtype: float64 or float32.
        report: called after every update.
    """
    chosen = presets.get(preset)
    train = replace(chosen.train, dtype=dtype, steps=steps, epochs=None)
    task = make_task(chosen.model, train)
    twins = Lockstep(*(m.Trainer(task.model, train) for m in (flax_training, torch_training)))
    worst: dict[str, float] = {}
    for update in range(1, steps + 1):
        rate = learning_rate(
            train.schedule,
            update,
            peak=train.learning_rate,
            d_model=task.model.d_model,
            total_steps=steps,
        )
        twins.train(task.train_batch(update), rate)
        found = twins.differences()
        worst = {name: max(value, worst.get(name, 0.0)) for name, value in found.items()}
        report(update, found)
    return worst


def refuse_steps(steps: int, dtype: str) -> None:
    """Refuse a number of updates, or their dtype, before anything is compared.

    Raises:
        NotComparableError: fewer than none, or updates in another dtype than float64 and float32.
    """
    if steps < 0:
        raise NotComparableError(f"--steps: {steps} is not usable; 0 or above")
    if steps and dtype not in ("float64", "float32"):
        raise NotComparableError(f"--steps: updates run in float64 or float32, not {dtype}")


def run_command(options: argparse.Namespace) -> int:
    """Compare and print; 0 where all is equal."""
    refuse_steps(options.steps, options.dtype)
    if not options.json:
        print(heading(settings.describe()) + "\n", flush=True)
    result = check_preset(options.preset, options.dtype, options.grads, options.seed)
    found, equal = result.to_dict(), result.equal
    if not options.json:
        print(result, flush=True)
    if options.steps:
        show = _show_step if not options.json else lambda update, differences: None
        worst = check_steps(options.preset, options.dtype, options.steps, show)
        verdict = "measured, not judged, in float32"
        if options.dtype == "float64":
            kept = max(worst["loss_difference"], worst["grad_norm_difference"])
            verdict = "EQUAL" if kept <= TRAINING_TOLERANCE else "DIFFERENT"
            equal &= verdict == "EQUAL"
        found |= {"steps": worst, "equal": equal}
        if not options.json:
            print(f"{verdict} over {options.steps} updates: " + _shown(worst))
    if options.json:
        print(json.dumps(found, indent=1))
    return 0 if equal else 1


def _show_step(update: int, differences: dict[str, float]) -> None:
    print(f"update {update:>4}: {_shown(differences)}", flush=True)


def _shown(differences: dict[str, float]) -> str:
    return ", ".join(f"{n.removesuffix('_difference')} {v:.1e}" for n, v in differences.items())
