"""A sparse mixture of experts: every token goes to the few feed-forwards its router prefers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from flax_transformer.attention import masked_softmax
from flax_transformer.dropout import Dropout
from flax_transformer.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from flax_transformer.norms import widen
from transformer_spec import config as spec
from transformer_spec.taps import tap


def chosen_experts(logits: Float[Array, "*B E"], top_k: int) -> Bool[Array, "*B E"]:
    """The `top_k` experts of largest logit; of equal ones those of lowest number.

    Differences: `jax.lax.top_k` breaks ties this way; `torch.topk` promises no order.
    """
    experts = jax.lax.top_k(logits, top_k)[1]
    return jax.nn.one_hot(experts, logits.shape[-1], dtype=bool).any(-2)


def expert_weights(
    logits: Float[Array, "*B E"], top_k: int, normalize: bool
) -> Float[Array, "*B E"]:
    """Each token's weight on every expert, in float32 or wider: 0 where it is not chosen.

    normalize: softmax over the chosen experts alone, which is the softmax over all, divided by the
    sum over the chosen (Jiang et al. 2024, section 2.1). Else the softmax over all (Fedus et al.
    2022, equation 2).
    """
    chosen = chosen_experts(logits, top_k)
    if normalize:
        return masked_softmax(logits, chosen)
    return jnp.where(chosen, jax.nn.softmax(widen(logits), axis=-1), 0.0)


class ExpertLinear(nn.Module):
    """y_e = x_e W_e for every expert e; one x for all of them where it has no expert axis."""

    num_experts: int
    width_in: int
    width_out: int

    def setup(self):
        start = nn.initializers.lecun_normal(batch_axis=0)
        shape = (self.num_experts, self.width_in, self.width_out)
        self.kernel = self.param("kernel", start, shape, jnp.float32)

    def __call__(self, x: Float[Array, "B T *E I"]) -> Float[Array, "B T E O"]:
        each = "BTI" if x.ndim == 3 else "BTEI"
        return jnp.einsum(f"{each},EIO->BTEO", x, self.kernel)


class MixtureOfExperts(nn.Module):
    """y = sum_e w_e (f(x W_gate,e) * x W_up,e) W_down,e, with w from `expert_weights` of x W_r.

    Every expert is computed for every token and weighted by 0 where it is not chosen: no token is
    dropped, no expert has a capacity, and the result is the definition.

    Source: Shazeer et al. 2017; Jiang et al. 2024 (Mixtral), section 2.1.
    """

    config: spec.ModelConfig
    slot: spec.MixtureOfExperts

    def setup(self):
        c, experts = self.config, self.slot.num_experts
        self.router = nn.Dense(experts, use_bias=False)
        self.gate_proj = ExpertLinear(experts, c.d_model, c.d_ff)
        self.up_proj = ExpertLinear(experts, c.d_model, c.d_ff)
        self.down_proj = ExpertLinear(experts, c.d_ff, c.d_model)
        self.hidden_dropout = Dropout(c.ffn_hidden_dropout)

    def __call__(
        self, x: Float[Array, "B T D"], *, deterministic: bool = True
    ) -> Float[Array, "B T D"]:
        logits = tap("router_logits", self.router(x))
        weights = expert_weights(logits, self.slot.top_k, self.slot.normalize)
        weights = tap("expert_weights", weights.astype(x.dtype))
        hidden = ACTIVATIONS[self.slot.activation](self.gate_proj(x)) * self.up_proj(x)
        hidden = self.hidden_dropout(hidden, deterministic=deterministic)
        return jnp.einsum("BTED,BTE->BTD", self.down_proj(hidden), weights)


def make_ffn(config: spec.ModelConfig) -> nn.Module:
    """The layer that fills the config's ffn slot."""
    match config.ffn:
        case spec.FeedForward(activation=activation):
            return FeedForward(config, activation)
        case spec.GatedFeedForward(activation=activation):
            return GatedFeedForward(config, activation)
        case spec.MixtureOfExperts() as slot:
            return MixtureOfExperts(config, slot)
