"""What --list and --dry-run print, and what config.json keeps."""

import json
from typing import Any

from transformer_spec import parameters
from transformer_spec.presets import PRESETS
from transformer_spec.train_config import TrainConfig
from transformer_training.command_line import Options
from transformer_training.tasks.task import Task


def list_presets() -> str:
    """One line per preset: sizes and parameters."""
    rows = [f"{'preset':<18}{'parameters':>14}  {'layers':<7}{'d_model':>7}{'d_ff':>6}{'heads':>6}"]
    for name, preset in PRESETS.items():
        m = preset.model
        layers = "+".join(str(n) for n in (m.num_layers, m.num_decoder_layers) if n)
        rows.append(
            f"{name:<18}{parameters.count(m):>14,}  {layers:<7}{m.d_model:>7}{m.d_ff:>6}"
            f"{m.num_heads:>6}  {preset.summary}"
        )
    return "\n".join(rows)


def describe(options: Options, train: TrainConfig, task: Task) -> str:
    """What --dry-run prints: the resolved config, parameters, memory and tokens per step."""
    config = resolved(options, task, train)
    count = parameters.count(task.model)
    size = {"float32": 4 * 4, "float64": 4 * 8, "bfloat16": 4 * 4 + 2 * 2}[train.dtype]
    rounded = ", and the first two in bfloat16" if train.dtype == "bfloat16" else ""
    batch = task.train_batch(1)
    total = train.total_steps(task.steps_per_epoch)
    return "\n".join(
        [
            json.dumps(config, indent=2),
            f"parameters      {count:,}",
            f"memory          {count * size / 2**20:,.1f} MiB for parameters, gradients and "
            f"two Adam moments{rounded}; activations come on top",
            f"tokens per step {batch.num_tokens():,}, {int(batch.label_mask.sum()):,} scored",
            f"updates         {total:,} ({task.steps_per_epoch:,} to an epoch)",
        ]
    )


def resolved(options: Options, task: Task, train: TrainConfig) -> dict[str, Any]:
    """All that is needed to repeat a run and to read what its model writes, as JSON values."""
    return {
        "backend": options.backend,
        "preset": options.preset,
        "init_from": options.init_from,
        "draws": options.draws,
        "model": task.model.to_dict(),
        "train": train.to_dict(),
        "tokenizer": task.tokenizer and task.tokenizer.to_dict(),
    }
