"""Cross-entropy over the tokens that count."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flax_transformer.moe import chosen_experts
from flax_transformer.norms import widen


def token_losses(
    logits: Float[Array, "B T V"], labels: Int[Array, "B T"], label_smoothing: float = 0.0
) -> Float[Array, "B T"]:
    """-sum_v p_v log softmax(logits)_v per token, in float32 or wider.

    p puts 1 - s on the label and spreads s evenly over all V classes, the label's own included.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4 (s = 0.1).
    Differences: `F.cross_entropy` of torch agrees; Sockeye and fairseq spread s over V - 1 classes,
    OpenNMT over V - 2. The usual log_softmax has the gradient softmax * sum_v p_v - p, and its sum
    is 1 but for a rounding that s makes the same in every token; here it is softmax - p.
    """
    logits = widen(logits)
    logits = logits - jax.lax.stop_gradient(logits.max(-1, keepdims=True))
    target = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    log_total = jnp.log(jnp.exp(logits).sum(-1))
    return log_total - (1 - label_smoothing) * target - label_smoothing * logits.mean(-1)


def cross_entropy(
    logits: Float[Array, "B T V"],
    labels: Int[Array, "B T"],
    label_mask: Bool[Array, "B T"],
    label_smoothing: float = 0.0,
    total: Int[Array, ""] | None = None,
) -> Float[Array, ""]:
    """The mean of `token_losses` over the tokens where `label_mask` is True; 0 where none is.

    Where the mask is False, a label may hold any value, -100 included: it is never looked up.

    Args:
        total: what the sum is divided by; by default the number of tokens that count. A part of a
            batch is given that of the whole batch.
    """
    safe = jnp.where(label_mask, labels, 0)
    losses = jnp.where(label_mask, token_losses(logits, safe, label_smoothing), 0.0)
    total = count_tokens(label_mask) if total is None else total
    return losses.sum() / total


def count_tokens(label_mask: Bool[Array, "B T"]) -> Int[Array, ""]:
    """How many tokens a mean is taken over: those where `label_mask` is True, at least 1."""
    return jnp.maximum(label_mask.sum(), 1)


def count_correct(
    logits: Float[Array, "B T V"], labels: Int[Array, "B T"], label_mask: Bool[Array, "B T"]
) -> Int[Array, ""]:
    """How many tokens where `label_mask` is True have their label as the largest logit."""
    return ((logits.argmax(-1) == labels) & label_mask).sum()


def count_exact(
    logits: Float[Array, "B T V"], labels: Int[Array, "B T"], label_mask: Bool[Array, "B T"]
) -> Int[Array, ""]:
    """How many rows have the right largest logit at every token where `label_mask` is True.

    Rows without such a token do not count. Greedy decoding writes such a row token for token.
    """
    right = (logits.argmax(-1) == labels) | ~label_mask
    return (right.all(-1) & label_mask.any(-1)).sum()


def balance_loss(
    logits: Float[Array, "B T E"], top_k: int, token_mask: Bool[Array, "B T"] | None
) -> Float[Array, ""]:
    """E sum_e f_e P_e: how unevenly one layer's router treats its experts; top_k if evenly.

    f_e: the share of tokens that go to expert e, which sums to top_k. P_e: the mean probability
    that the router gives it. Padding counts in neither.

    Source: Fedus et al. 2022, equations 4 to 6, for any top_k.
    """
    counts = jnp.ones(logits.shape[:2], bool) if token_mask is None else token_mask
    total = jnp.maximum(counts.sum(), 1)
    chosen = chosen_experts(logits, top_k) & counts[..., None]
    probs = jnp.where(counts[..., None], jax.nn.softmax(widen(logits), axis=-1), 0.0)
    share = chosen.sum((0, 1)).astype(probs.dtype) / total
    return logits.shape[-1] * (share * probs.sum((0, 1)) / total).sum()


def router_loss(
    layers: list[Float[Array, "B T E"]], top_k: int, token_mask: Bool[Array, "B T"] | None
) -> Float[Array, ""]:
    """The mean of `balance_loss` over the layers' router logits.

    Differences: `transformers` concatenates all layers before it takes shares, so that an expert
    overloaded in one layer is offset by the expert of the same number that is idle in another.
    """
    return jnp.stack([balance_loss(logits, top_k, token_mask) for logits in layers]).mean()


def shift_right(labels: Int[Array, "B T"], start: int, padding: int) -> Int[Array, "B T"]:
    """What a decoder reads to predict `labels`: the start token, then all but the last label.

    A label below 0, which no loss counts (-100), becomes padding: as an index it would be a row.
    """
    first = jnp.full_like(labels[:, :1], start)
    inputs = jnp.concatenate([first, labels[:, :-1]], axis=1)
    return jnp.where(inputs < 0, padding, inputs)
