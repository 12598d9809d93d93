"""Scaled dot-product attention, for any number of key/value heads."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from flax_transformer.cache import LayerCache
from flax_transformer.dropout import Dropout
from flax_transformer.masks import check_mask
from flax_transformer.norms import make_norm, widen
from flax_transformer.positions import Rotation, rotate
from transformer_spec.config import ModelConfig
from transformer_spec.taps import tap


def masked_softmax(
    scores: Float[Array, "... S"], mask: Bool[Array, "... S"] | None
) -> Float[Array, "... S"]:
    """Softmax over the allowed keys, in float32 or wider; a row without any gives zeros.

    Differences: with -inf for the masked scores such a row is NaN, with a large negative number it
    is uniform. Here it is zero, and so is its gradient.
    """
    scores = widen(scores)
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    floor = jnp.finfo(scores.dtype).min
    weights = jax.nn.softmax(jnp.where(mask, scores, floor), axis=-1)
    return jnp.where(mask, weights, 0.0)


def soft_cap(x: Float[Array, "*S"], cap: float | None) -> Float[Array, "*S"]:
    """cap tanh(x / cap): within (-cap, cap), and x itself near 0; x where there is no cap.

    Source: Bello et al. 2016, section 4 (logits); Gemma team 2024, section 2.
    """
    return x if cap is None else cap * jnp.tanh(x / cap)


def dot_product_attention(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: Bool[Array, "..."] | None = None,
    *,
    scale: float,
    bias: Float[Array, "*#B N T S"] | None = None,
    cap: float | None = None,
    temperature: float = 1.0,
    dropout: Callable[[Array], Array] = lambda weights: weights,
) -> tuple[Float[Array, "B T N H"], Float[Array, "B N T S"]]:
    """softmax((soft_cap(scale Q K^T) + bias) / temperature) V, and the weights of the softmax.

    Args:
        q, k, v: N query heads read from K key/value heads; query heads n G .. n G + G - 1 share
            key/value head n, with G = N / K. K = N is multi-head, K = 1 multi-query attention.
        mask: boolean, True = may attend, broadcastable to [B, N, T, S].
        scale: the factor on the scores, head_dim**-0.5 in the paper.
        cap: the soft cap on the scaled scores, Gemma 2's.
        bias: added to the scaled scores of each head: ALiBi's or T5's.
        temperature: above 1 evens the weights out, toward 0 makes them one-hot.
        dropout: applied to the weights that multiply V, not to those returned.
    Raises:
        ValueError: the mask has another dtype or shape, or the temperature is not above 0.
    Source: Vaswani et al. 2017, equation 1; Shazeer 2019 (one key/value head); Ainslie et al. 2023
    (groups).
    Differences: `nn.MultiHeadDotProductAttention` of Linen always scales by head_dim**-0.5 and,
    with its default `broadcast_dropout`, drops the same weights for all rows and all heads.
    """
    (batch, length, heads, width), (keys, kv_heads) = q.shape, k.shape[1:3]
    if not temperature > 0:
        raise ValueError(f"temperature: {temperature} is not usable; it must be above 0")
    if mask is not None:
        check_mask(mask, (batch, heads, length, keys))
        # Heads as [K, G]; a mask for all heads keeps its 1.
        split = (1, 1) if mask.shape[1] == 1 else (kv_heads, heads // kv_heads)
        mask = mask.reshape(mask.shape[0], *split, *mask.shape[2:])
    grouped = q.reshape(batch, length, kv_heads, heads // kv_heads, width)
    scores = jnp.einsum("BTKGH,BSKH->BKGTS", grouped, k) * (scale / temperature)
    scores = soft_cap(scores, None if cap is None else cap / temperature)
    if bias is not None:
        by_group = bias.reshape(-1, kv_heads, heads // kv_heads, length, keys)
        scores = scores + by_group.astype(scores.dtype) / temperature
    scores = tap("scores", scores)
    weights = tap("weights", masked_softmax(scores, mask).astype(v.dtype))
    context = tap("context", jnp.einsum("BKGTS,BSKH->BTKGH", dropout(weights), v))
    return context.reshape(q.shape), weights.reshape(batch, heads, length, keys)


class Attention(nn.Module):
    """O = concat(head_1 .. head_N) Wo, where head_n attends with x Wq to memory Wk, memory Wv.

    Self-attention where memory is None, cross-attention otherwise. Biases, widths, heads and scale
    are the config's; so is whether each head's q and k are normalized, all heads by the same layer.
    In self-attention, the config's positions may rotate queries and keys or add a bias to the
    scores.

    Source: Vaswani et al. 2017, section 3.2.2; Dehghani et al. 2023, section 2 (norms of q and k).
    Differences: `nn.MultiheadAttention` of torch fuses Wq, Wk, Wv into `in_proj_weight`, expects
    [T, B, D] by default and averages the returned weights over heads.
    """

    config: ModelConfig

    def setup(self):
        c = self.config
        self.q_proj = nn.Dense(c.num_heads * c.head_size, use_bias=c.qkv_bias)
        self.k_proj = nn.Dense(c.kv_heads * c.head_size, use_bias=c.qkv_bias)
        self.v_proj = nn.Dense(c.kv_heads * c.head_size, use_bias=c.qkv_bias)
        self.o_proj = nn.Dense(c.d_model, use_bias=c.out_bias)
        self.q_norm = make_norm(c.norm, c.head_size) if c.qk_norm else None
        self.k_norm = make_norm(c.norm, c.head_size) if c.qk_norm else None
        self.weights_dropout = Dropout(c.attn_dropout)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        memory: Float[Array, "B S D"] | None = None,
        mask: Bool[Array, "..."] | None = None,
        rotation: Rotation | None = None,
        bias: Float[Array, "..."] | None = None,
        cache: LayerCache | None = None,
        *,
        temperature: float = 1.0,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"], LayerCache | None]:
        """The output, the attention weights, and the cache with these keys and values appended.

        Args:
            cache: of the keys and values before these: S is then the number of its slots, in `mask`
                and `bias` too. What it keeps is rounded to its dtype, and read back in that of q.
        """
        memory = x if memory is None else memory
        q = tap("q", self._heads(self.q_proj(x)))
        k = tap("k", self._heads(self.k_proj(memory)))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if rotation is not None:
            q = tap("q_rotated", rotate(q, rotation, self.config.interleaved))
            k = tap("k_rotated", rotate(k, rotation, self.config.interleaved))
        v = tap("v", self._heads(self.v_proj(memory)))
        if cache is not None:
            cache = cache.append(k, v)
            k = tap("k_cached", cache.keys.astype(q.dtype))
            v = tap("v_cached", cache.values.astype(v.dtype))
        context, weights = dot_product_attention(
            q,
            k,
            v,
            mask,
            scale=self.config.score_scale,
            bias=bias,
            cap=self.config.score_cap,
            temperature=temperature,
            dropout=lambda w: self.weights_dropout(w, deterministic=deterministic),
        )
        return self.o_proj(context.reshape(*x.shape[:2], -1)), weights, cache

    def _heads(self, x: Float[Array, "B T W"]) -> Float[Array, "B T N H"]:
        return x.reshape(*x.shape[:2], -1, self.config.head_size)
