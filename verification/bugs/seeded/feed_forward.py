"""Mistakes in the feed-forward sublayer."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_reference import feed_forward, gradients
from torch_reference.feed_forward import ACTIVATIONS, GatedFeedForward
from torch_reference.losses import balance_loss, router_loss
from verification.bugs.seeded_bug import SeededBug, github, swapped


def _activated_up(self: GatedFeedForward, x: Tensor) -> Tensor:
    hidden = self.gate_proj(x) * ACTIVATIONS[self.activation](self.up_proj(x))
    return self.down_proj(self.hidden_dropout(hidden))


def _activated_product(self: GatedFeedForward, x: Tensor) -> Tensor:
    hidden = ACTIVATIONS[self.activation](self.gate_proj(x) * self.up_proj(x))
    return self.down_proj(self.hidden_dropout(hidden))


def _of_probabilities(layers: list[Tensor], top_k: int, token_mask: Tensor | None) -> Tensor:
    return router_loss([logits.softmax(-1) for logits in layers], top_k, token_mask)


def _end_to_end(layers: list[Tensor], top_k: int, token_mask: Tensor | None) -> Tensor:
    masks = None if token_mask is None else torch.cat([token_mask] * len(layers))
    return balance_loss(torch.cat(layers), top_k, masks)


def _with_padding(layers: list[Tensor], top_k: int, token_mask: Tensor | None) -> Tensor:
    return router_loss(layers, top_k, None)


BUGS = (
    SeededBug(
        id="FFN-01",
        name="GELU by its tanh approximation",
        component="feed-forward",
        sources=(
            "https://github.com/kyutai-labs/pocket-tts/pull/278",
            "https://github.com/tinygrad/tinygrad/pull/16162",
            "https://github.com/apache/tvm/pull/14814",
            "https://github.com/AlexanderLutsenko/nobuco/pull/9",
        ),
        how="gelu is computed with tanh where the config means the error function.",
        case="decoder",
        at="decoder.layers.0.ffn",
        cause="gelu by its tanh approximation.* where the reference has gelu by the error function",
        install=partial(
            swapped,
            feed_forward,
            "ACTIVATIONS",
            ACTIVATIONS | {"gelu": partial(F.gelu, approximate="tanh")},
        ),
    ),
    SeededBug(
        id="FFN-03",
        name="Activation on the branch that is not the gate",
        component="feed-forward",
        sources=("https://github.com/ml-explore/mlx-lm/pull/767",),
        how="The hidden layer is gate * silu(up), not silu(gate) * up.",
        case="modern",
        at="decoder.layers.0.ffn",
        cause=r"silu\(up_proj\) \* gate_proj, where the reference has silu\(gate_proj\) \* up_proj",
        install=partial(swapped, GatedFeedForward, "forward", _activated_up),
    ),
    SeededBug(
        id="FFN-04",
        name="Activation around the product",
        component="feed-forward",
        sources=("https://github.com/Nijikadesu/breakdown-minimind/issues/3",),
        how="The hidden layer is silu(gate * up), not silu(gate) * up.",
        case="modern",
        at="decoder.layers.0.ffn",
        cause=r"silu\(gate_proj \* up_proj\), where the reference has silu\(gate_proj\) \* up_proj",
        install=partial(swapped, GatedFeedForward, "forward", _activated_product),
    ),
    SeededBug(
        id="FFN-06",
        name="Softmax over router probabilities",
        component="feed-forward",
        sources=github("huggingface/transformers/pull/45132"),
        how="The balance loss takes the softmax of what is one already.",
        case="decoder",
        at="loss.router",
        cause="^softmax of their softmax, where the reference has softmax of the logits$",
        install=partial(swapped, gradients, "router_loss", _of_probabilities),
    ),
    SeededBug(
        id="FFN-07",
        name="Balance loss over all layers at once",
        component="feed-forward",
        sources=github(
            "huggingface/transformers/issues/28093",
            "huggingface/transformers/issues/28255",
            "huggingface/transformers/pull/28256",
        ),
        how="Means are taken over all layers at once: what one overloads, another may leave idle.",
        case="decoder",
        at="loss.router",
        cause="^all layers end to end, where the reference has each layer by itself$",
        install=partial(swapped, gradients, "router_loss", _end_to_end),
    ),
    SeededBug(
        id="FFN-08",
        name="Padding counted in the balance loss",
        component="feed-forward",
        sources=github(
            "huggingface/transformers/issues/28505",
            "huggingface/transformers/pull/28517",
            "huggingface/transformers/pull/29363",
        ),
        how="The token mask does not reach the balance loss: experts of padding count.",
        case="decoder",
        at="loss.router",
        cause="^shares of tokens and padding, where the reference has shares of tokens$",
        install=partial(swapped, gradients, "router_loss", _with_padding),
    ),
)
