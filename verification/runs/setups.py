"""Small training set-ups: each preset's architecture on data that fits its objective.

Everything that makes up an update is in them: warmup and decay of the rate, clipping that acts at
some updates and not at others, decay with its mask, label smoothing, dropout at every place.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from transformer_spec.batch import Batch
from transformer_spec.config import MixtureOfExperts, ModelConfig, PrefixLM
from transformer_spec.presets import PRESETS
from transformer_spec.schedules import WarmupCosine, learning_rate
from transformer_spec.train_config import TrainConfig
from transformer_training.tasks import Task, make_task
from verification.golden import FOLDER
from verification.twins.small_presets import repeated_but_for_constants, shrink, small_presets

# Presets that are others but for constants are left out.
FAMILIES = tuple(
    name.split(", ")[0] for name in small_presets() if name not in repeated_but_for_constants()
)
DROPOUT = 0.1
# The id 0 of the vocabularies here, a line break or padding, stands for a hidden token.
HIDDEN, MASK_SHARE = 0, 0.3
# Gradient norms lie on both sides of it; of 1 where none is given.
_CLIP_NORMS = {"char-gpt": 0.65}


@dataclass(frozen=True)
class TrainingSetup:
    """What is trained, how, and on what.

    Args:
        batch: the batch of update 1, 2, ...
    """

    model: ModelConfig
    train: TrainConfig
    batch: Callable[[int], Batch]

    def learning_rate(self, update: int) -> float:
        return learning_rate(
            self.train.schedule,
            update,
            peak=self.train.learning_rate,
            d_model=self.model.d_model,
            total_steps=self.train.total_steps(1),
        )


def make_setup(preset: str, updates: int, accumulation: int = 1) -> TrainingSetup:
    """The set-up of one of `FAMILIES`, or of any other preset.

    A decoder learns the numbers in words, a prefix of each row given where its mask has one, rows
    of many lengths; an encoder to fill in hidden characters of them; an encoder-decoder to sort.
    """
    model = _dropping(shrink(PRESETS[preset].model))
    lone = model.arch != "encoder_decoder"
    train = TrainConfig(
        task="language_model" if lone else "sort",
        data=str(FOLDER / "numbers.txt") if lone else None,
        batch_size=8,
        accumulation=accumulation,
        steps=updates,
        learning_rate=3e-3,
        schedule=WarmupCosine(warmup_steps=max(updates // 20, 2), final_fraction=0.1),
        beta2=0.95,
        weight_decay=0.1,
        clip_norm=_CLIP_NORMS.get(preset, 1.0),
        label_smoothing=0.1,
        router_loss=0.02 if isinstance(model.ffn, MixtureOfExperts) else 0.0,
        init=PRESETS[preset].train.init,
        dtype="float64",
    )
    task = make_task(_reader(model), train)
    model = replace(model, vocab_size=task.model.vocab_size)
    return TrainingSetup(model, train, lambda update: _batch(model, task, update))


def _reader(model: ModelConfig) -> ModelConfig:
    """What a task takes: an encoder's is made of a decoder's windows of text."""
    if model.arch != "encoder":
        return model
    heads = {"masked_lm": False, "pooler": False, "next_sentence": False, "num_token_types": 0}
    return replace(model, arch="decoder", **heads)


def _dropping(model: ModelConfig) -> ModelConfig:
    names = ("embed", "attn", "attn_out", "ffn_hidden", "ffn_out")
    return replace(model, **{f"{name}_dropout": DROPOUT for name in names})


def _batch(model: ModelConfig, task: Task, update: int) -> Batch:
    batch = task.train_batch(update)
    if model.arch == "encoder_decoder":
        return batch
    rng = np.random.default_rng([update, 59])
    tokens, at = batch.inputs["tokens"], np.arange(batch.labels.shape[1])
    rows, length = tokens.shape
    real = at < rng.integers(length // 2, length + 1, (rows, 1))
    if model.arch == "encoder":
        hidden = (rng.random(tokens.shape) < MASK_SHARE) & real
        seen = np.where(hidden, HIDDEN, tokens)
        return Batch({"tokens": seen, "token_mask": real}, tokens, hidden)
    if isinstance(model.mask, PrefixLM):
        prefix = at < rng.integers(1, length // 2, (rows, 1))
        inputs = {"tokens": tokens, "token_mask": real, "prefix_mask": prefix}
        return Batch(inputs, batch.labels, real & ~prefix)
    return Batch({"tokens": tokens, "token_mask": real}, batch.labels, real)
