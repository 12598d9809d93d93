"""Turning logits into tokens."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_transformer.models import EncoderDecoder, HeadedEncoder, LanguageModel, Model, apply
from flax_transformer.stacks import Encoder

# The tokens of a window, and where in the text it begins -> the logits at each.
NextLogits = Callable[[Int[Array, "B W"], Int[Array, ""]], Float[Array, "B W V"]]


def extend_greedily(
    next_logits: NextLogits, prefix: Int[Array, "B P"], num_tokens: int, window: int
) -> Int[Array, "B L"]:
    """Append the most probable token `num_tokens` times; the model sees the last `window` tokens.

    The model runs on a full window each time: what stands right of the last token does not matter
    to a causal model. The lowest id wins a tie.
    """
    batch, start = prefix.shape
    width = min(window, start + num_tokens)
    tokens = jnp.zeros((batch, start + num_tokens), prefix.dtype).at[:, :start].set(prefix)

    def step(i, tokens):
        left = jnp.maximum(i - width, 0)
        logits = next_logits(_window(tokens, left, width), left)
        last = jax.lax.dynamic_index_in_dim(logits, i - 1 - left, axis=1, keepdims=False)
        return tokens.at[:, i].set(last.argmax(-1).astype(tokens.dtype))

    return jax.lax.fori_loop(start, start + num_tokens, step, tokens)


def _window(x: Array, left: Array, width: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, left, width, axis=1)


@partial(jax.jit, static_argnames=("model", "num_tokens"))
def greedy(
    model: Model,
    params: dict,
    inputs: dict[str, Array],
    num_tokens: int,
) -> Int[Array, "B L"]:
    """The model's own prefix (`tokens` or `target`) with `num_tokens` more, each the most probable.

    Args:
        inputs: the keyword arguments of the model's call.
    """
    window = model.config.max_seq_len
    match model:
        case LanguageModel():
            prefix = inputs.get("prefix_mask")
            seen = None if prefix is None else jnp.pad(prefix, ((0, 0), (0, num_tokens)))

            def after_tokens(tokens, left):
                prefix = None if seen is None else _window(seen, left, tokens.shape[1])
                return apply(model, params, tokens, prefix_mask=prefix)

            return extend_greedily(after_tokens, inputs["tokens"], num_tokens, window)
        case EncoderDecoder():
            source, source_mask = inputs["source"], inputs.get("source_mask")
            memory = apply(model, params, source, source_mask, method="encode")

            def after_target(target, left):
                return apply(model, params, target, memory, source_mask, method="decode")

            return extend_greedily(after_target, inputs["target"], num_tokens, window)
        case Encoder() | HeadedEncoder():
            raise ValueError("model: an encoder writes no tokens; give a decoder")
