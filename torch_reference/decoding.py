"""Turning logits into tokens."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torch_reference.models import EncoderDecoder, LanguageModel
from torch_reference.stacks import Encoder

NextLogits = Callable[[Int[Tensor, "B W"]], Float[Tensor, "B W V"]]


def extend_greedily(
    next_logits: NextLogits, prefix: Int[Tensor, "B P"], num_tokens: int, window: int
) -> Int[Tensor, "B L"]:
    """Append the most probable token `num_tokens` times; the model sees the last `window` tokens.

    The lowest id wins a tie.
    """
    tokens = prefix
    for _ in range(num_tokens):
        last = next_logits(tokens[:, -window:])[:, -1]
        tokens = torch.cat([tokens, last.argmax(-1, keepdim=True).to(tokens.dtype)], dim=1)
    return tokens


@torch.no_grad()
def greedy(
    model: Encoder | LanguageModel | EncoderDecoder, inputs: dict[str, Tensor], num_tokens: int
) -> Int[Tensor, "B L"]:
    """The model's own prefix (`tokens` or `target`) with `num_tokens` more, each the most probable.

    Args:
        inputs: the keyword arguments of the model's call.
    """
    window = model.config.max_seq_len
    match model:
        case LanguageModel():
            return extend_greedily(model, inputs["tokens"], num_tokens, window)
        case EncoderDecoder():
            source, source_mask = inputs["source"], inputs.get("source_mask")
            memory = model.encode(source, source_mask)

            def next_logits(target):
                return model.decode(target, memory, source_mask)

            return extend_greedily(next_logits, inputs["target"], num_tokens, window)
        case Encoder():
            raise ValueError("model: an encoder writes no tokens; give a decoder")
