"""The loss of an update's batch and its gradient, in one piece or summed over small batches."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from flax_transformer.losses import count_correct, count_tokens, cross_entropy, router_loss
from flax_transformer.models import EncoderOutputs, Model, apply
from transformer_spec.batch import Batch
from transformer_spec.config import MixtureOfExperts
from transformer_spec.taps import collecting
from transformer_spec.train_config import TrainConfig

Metrics = dict[str, Array]


def in_dtype(params: dict, dtype: str) -> dict:
    """The parameters in the dtype of arithmetic; gradients keep the parameters' dtype."""
    return jax.tree.map(lambda p: p.astype(dtype), params)


def token_logits(outputs: Array | EncoderOutputs) -> Float[Array, "B T V"]:
    """The logits that a loss is computed from; an encoder's are its masked-token head's."""
    if not isinstance(outputs, EncoderOutputs):
        return outputs
    if outputs.logits is None:
        raise ValueError("model: an encoder without masked_lm has no logits to train on")
    return outputs.logits


def part_loss(
    params: dict,
    part: Batch,
    total: Int[Array, ""],
    key: Key[Array, ""],
    *,
    model: Model,
    config: TrainConfig,
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """A small batch's share of the loss of its batch, and its correct tokens, dropout on."""
    narrow, rngs = in_dtype(params, config.dtype), {"dropout": key}
    with collecting("router_logits") as routed:
        outputs = apply(model, narrow, **part.inputs, deterministic=False, rngs=rngs)
    logits = token_logits(outputs)
    loss = cross_entropy(logits, part.labels, part.label_mask, config.label_smoothing, total)
    ffn = model.config.ffn
    if config.router_loss and isinstance(ffn, MixtureOfExperts):
        mask, share = part.inputs.get("token_mask"), config.router_loss / config.accumulation
        loss += share * router_loss(routed, ffn.top_k, mask)
    return loss, count_correct(logits, part.labels, part.label_mask)


def gradients(
    params: dict,
    batch: Batch,
    key: Key[Array, ""],
    update: Int[Array, ""],
    *,
    model: Model,
    config: TrainConfig,
) -> tuple[dict, Metrics]:
    """The gradient of a batch's loss, and the loss and the correct tokens themselves.

    L = (sum over all tokens that count in the batch of their losses) / (their number)

    whatever the number A = `config.accumulation` of small batches: each loss is divided by the
    number of tokens of the whole batch, and the gradients are summed. Clipping, counting and the
    schedule apply to the update. Small batch i = 0 .. A - 1 of the update drops values under
    the key fold_in(key, A * update + i).

    A router's balance loss is not a sum over tokens but a product of two means: it is computed for
    each small batch separately, with weight 1 / A, and so depends on A.

    Args:
        update: how many updates came before.
    Raises:
        ValueError: A does not divide the rows of the batch.
    Differences: `optax.MultiSteps` takes the mean of the small batches' gradients, and so does the
        usual `(loss / A).backward()` of torch: a mean of means, another gradient wherever small
        batches hold different numbers of tokens.
    """
    total = count_tokens(batch.label_mask)
    first = config.accumulation * update

    def part_gradients(number: Any, part: Batch) -> tuple[dict, Metrics]:
        part_key = jax.random.fold_in(key, first + number)
        valued = jax.value_and_grad(part_loss, has_aux=True)
        (loss, correct), grads = valued(params, part, total, part_key, model=model, config=config)
        return grads, {"loss": loss, "correct": correct}

    if config.accumulation == 1:
        return part_gradients(0, batch)
    parts = jax.tree.map(lambda *rows: jnp.stack(rows), *batch.parts(config.accumulation))
    numbered = jnp.arange(config.accumulation), parts
    one = jax.tree.map(lambda x: x[0], numbered)
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(part_gradients, *one))

    def add(sums: Any, numbered_part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, part_gradients(*numbered_part)), None

    return jax.lax.scan(add, zeros, numbered)[0]
