"""Mistakes in the feed-forward sublayer."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from parity.plants.plant import Plant, swapped
from torch_reference import feed_forward
from torch_reference.feed_forward import ACTIVATIONS, GatedFeedForward


def _activated_up(self: GatedFeedForward, x: Tensor) -> Tensor:
    hidden = self.gate_proj(x) * ACTIVATIONS[self.activation](self.up_proj(x))
    return self.down_proj(self.hidden_dropout(hidden))


def _activated_product(self: GatedFeedForward, x: Tensor) -> Tensor:
    hidden = ACTIVATIONS[self.activation](self.gate_proj(x) * self.up_proj(x))
    return self.down_proj(self.hidden_dropout(hidden))


PLANTS = (
    Plant(
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
    Plant(
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
    Plant(
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
)
