"""A sparse mixture of experts: every token goes to the few feed-forwards its router prefers."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from torch_reference.attention import masked_softmax
from torch_reference.dropout import Dropout
from torch_reference.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from torch_reference.norms import widen
from transformer_spec import config as spec
from transformer_spec.taps import tap


def chosen_experts(logits: Float[Tensor, "*B E"], top_k: int) -> Bool[Tensor, "*B E"]:
    """The `top_k` experts of largest logit; of equal ones those of lowest number.

    Differences: `jax.lax.top_k` breaks ties this way; `torch.topk` promises no order.
    """
    experts = logits.sort(dim=-1, descending=True, stable=True).indices[..., :top_k]
    return F.one_hot(experts, logits.shape[-1]).bool().any(dim=-2)


def expert_weights(
    logits: Float[Tensor, "*B E"], top_k: int, normalize: bool
) -> Float[Tensor, "*B E"]:
    """Each token's weight on every expert, in float32 or wider: 0 where it is not chosen.

    normalize: softmax over the chosen experts alone, which is the softmax over all, divided by the
    sum over the chosen (Jiang et al. 2024, section 2.1). Else the softmax over all (Fedus et al.
    2022, equation 2).
    """
    chosen = chosen_experts(logits, top_k)
    if normalize:
        return masked_softmax(logits, chosen)
    return torch.where(chosen, widen(logits).softmax(dim=-1), 0.0)


class ExpertLinear(nn.Module):
    """y_e = x_e W_e^T for every expert e; one x for all of them where it has no expert axis."""

    def __init__(self, num_experts: int, width_in: int, width_out: int):
        super().__init__()
        start = torch.randn(num_experts, width_out, width_in) * width_in**-0.5
        self.weight = nn.Parameter(start)

    def forward(self, x: Float[Tensor, "B T *E I"]) -> Float[Tensor, "B T E O"]:
        each = "BTI" if x.ndim == 3 else "BTEI"
        return torch.einsum(f"{each},EOI->BTEO", x, self.weight)


class MixtureOfExperts(nn.Module):
    """y = sum_e w_e (f(x W_gate,e) * x W_up,e) W_down,e, with w from `expert_weights` of x W_r.

    Every expert is computed for every token and weighted by 0 where it is not chosen: no token is
    dropped, no expert has a capacity, and the result is the definition.

    Source: Shazeer et al. 2017; Jiang et al. 2024 (Mixtral), section 2.1.
    """

    def __init__(self, config: spec.ModelConfig, slot: spec.MixtureOfExperts):
        super().__init__()
        c, experts = config, slot.num_experts
        self.slot = slot
        self.router = nn.Linear(c.d_model, experts, bias=False)
        self.gate_proj = ExpertLinear(experts, c.d_model, c.d_ff)
        self.up_proj = ExpertLinear(experts, c.d_model, c.d_ff)
        self.down_proj = ExpertLinear(experts, c.d_ff, c.d_model)
        self.hidden_dropout = Dropout(c.ffn_hidden_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        logits = tap("router_logits", self.router(x))
        weights = expert_weights(logits, self.slot.top_k, self.slot.normalize)
        weights = tap("expert_weights", weights.to(x.dtype))
        hidden = ACTIVATIONS[self.slot.activation](self.gate_proj(x)) * self.up_proj(x)
        return torch.einsum("BTED,BTE->BTD", self.down_proj(self.hidden_dropout(hidden)), weights)


def make_ffn(config: spec.ModelConfig) -> nn.Module:
    """The layer that fills the config's ffn slot."""
    match config.ffn:
        case spec.FeedForward(activation=activation):
            return FeedForward(config, activation)
        case spec.GatedFeedForward(activation=activation):
            return GatedFeedForward(config, activation)
        case spec.MixtureOfExperts() as slot:
            return MixtureOfExperts(config, slot)
