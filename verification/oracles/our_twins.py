"""Our twins under observation, with the losses that transformers computes."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import flax_transformer
import flax_transformer.losses as flax_losses
import torch_reference
import torch_reference.losses as torch_losses
from parity.observe.arrays import as_tensor
from parity.observe.flax_side import FlaxSide
from parity.observe.points import Key, Recording
from parity.observe.torch_side import TorchSide
from transformer_spec import naming
from transformer_spec.config import MixtureOfExperts, ModelConfig
from transformer_spec.taps import collecting
from verification.oracles.cases import Batch

Arrays = dict[str, np.ndarray]
UNCOUNTED, START, PADDING = -100, 0, 0


def objective(
    losses: ModuleType,
    config: ModelConfig,
    model: Callable[..., Any],
    batch: Mapping[str, Any],
    router_coefficient: float,
) -> Any:
    """What transformers would call the loss, in either framework.

    Args:
        losses: `flax_transformer.losses` or `torch_reference.losses`.
        router_coefficient: the factor on the router's loss.
    """
    if config.arch == "encoder_decoder":
        target = losses.shift_right(batch["labels"], START, PADDING)
        given = {name: batch[name] for name in ("source", "source_mask", "target_mask")}
        return _mean(losses, model(target=target, **given), batch["labels"])
    given = {n: batch[n] for n in ("tokens", "token_mask", "token_types") if n in batch}
    if config.arch == "encoder":
        return _encoder_objective(losses, model(**given), batch)
    with collecting("router_logits") as routed:
        logits = model(**given)
    loss = _mean(losses, logits[:, :-1], batch["labels"][:, 1:])
    if router_coefficient and isinstance(config.ffn, MixtureOfExperts):
        balance = losses.router_loss(routed, config.ffn.top_k, batch["token_mask"])
        loss = loss + router_coefficient * balance
    return loss


def _mean(losses: ModuleType, logits: Any, labels: Any) -> Any:
    return losses.cross_entropy(logits, labels, labels != UNCOUNTED)


def _encoder_objective(losses: ModuleType, outputs: Any, batch: Mapping[str, Any]) -> Any:
    if outputs.logits is None:
        hidden = (batch["hidden_weights"] * outputs.hidden).sum()
        return hidden + (batch["pooled_weights"] * outputs.pooled).sum()
    loss = _mean(losses, outputs.logits, batch["labels"])
    if outputs.next_sentence is None:
        return loss
    labels = batch["sentence_labels"][:, None]
    return loss + _mean(losses, outputs.next_sentence[:, None], labels)


class FlaxObjective(linen.Module):
    config: ModelConfig
    router_coefficient: float

    def setup(self):
        self.model = flax_transformer.build_model(self.config)

    def __call__(self, **batch: Any) -> Any:
        coefficient = self.router_coefficient
        return objective(flax_losses, self.config, self.model, batch, coefficient)


class TorchObjective(nn.Module):
    def __init__(self, config: ModelConfig, router_coefficient: float):
        super().__init__()
        self.config, self.router_coefficient = config, router_coefficient
        self.model = torch_reference.build_model(config)

    def forward(self, **batch: Any) -> Any:
        coefficient = self.router_coefficient
        return objective(torch_losses, self.config, self.model, batch, coefficient)


def run_flax(
    config: ModelConfig, named: Mapping[str, np.ndarray], batch: Batch, router_coefficient: float
) -> Arrays:
    """Outputs, hidden states and the loss as `output.*`, its gradients as `parameter.*`."""
    module = FlaxObjective(config, router_coefficient)
    arrays: dict[str, Any] = {name: jnp.asarray(value) for name, value in batch.items()}
    template = jax.eval_shape(lambda: module.init(jax.random.key(0), **arrays))["params"]
    prefixed = {f"model.{name}": jnp.asarray(value) for name, value in named.items()}
    params = naming.from_named(prefixed, template)
    side = FlaxSide(module, params, batch, watched={_MODEL, *_points(config).values()})
    return _figures(side.record(), config, batch)


def run_torch(
    config: ModelConfig, named: Mapping[str, np.ndarray], batch: Batch, router_coefficient: float
) -> Arrays:
    """The same, in the dtype of the parameters."""
    dtype = as_tensor(next(iter(named.values()))).dtype
    module = TorchObjective(config, router_coefficient).to(dtype).eval()
    values = {f"model.{name}": torch.tensor(value) for name, value in named.items()}
    module.load_state_dict(values)
    side = TorchSide(module, batch, watched={_MODEL, *_points(config).values()})
    return _figures(side.record(), config, batch)


def _figures(run: Recording, config: ModelConfig, batch: Batch) -> Arrays:
    run.require_finished()
    outputs = {name: run.observed[key].arrays[0] for name, key in _points(config).items()}
    heads = zip(_heads(config), run.observed[_MODEL].arrays, strict=True)
    loss = {"loss": run.outputs[0]}
    return _named(outputs | loss | dict(heads), run.parameter_gradients, config, batch)


_MODEL: Key = ("model", "output")


def _points(config: ModelConfig) -> dict[str, Key]:
    """Where hidden states pass: into each block, and out of each stack."""
    encoder, decoder = config.num_layers, config.decoder_depth
    two = {"encoder": encoder, "decoder": decoder}
    points: dict[str, Key] = {}
    for stack, depth in two.items():
        if config.arch in (stack, "encoder_decoder"):
            blocks = [f"model.{stack}.layers.{i}" for i in range(depth)]
            points |= {f"{stack} {i}": (block, "input") for i, block in enumerate(blocks)}
            points[f"{stack} {depth}"] = f"model.{stack}", "output"
    return points


def _heads(config: ModelConfig) -> list[str]:
    """What the model gives, in order."""
    if config.arch != "encoder":
        return ["logits"]
    heads = {
        "logits": config.masked_lm,
        "pooled": config.pooler,
        "next_sentence": config.next_sentence,
    }
    return ["hidden", *(name for name, there in heads.items() if there)]


def _named(outputs: Arrays, gradients: Arrays, config: ModelConfig, batch: Batch) -> Arrays:
    """By the names that the oracle's have, at tokens alone."""
    target = batch["target_mask" if config.arch == "encoder_decoder" else "token_mask"]
    masks = {"encoder": batch.get("source_mask", target)}
    masks |= dict.fromkeys(("logits", "hidden", "decoder"), target)
    found = {}
    for name, value in outputs.items():
        mask = masks.get(name.split(" ")[0])
        found[f"output.{name}"] = value if mask is None else value[mask]
    return found | {
        f"parameter.{name.removeprefix('model.')}": gradient for name, gradient in gradients.items()
    }
