"""Turning logits into tokens."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from torch_reference.models import EncoderDecoder, HeadedEncoder, LanguageModel, Model
from torch_reference.stacks import Encoder

# The tokens of a window, and where in the text it begins -> the logits at each.
NextLogits = Callable[[Int[Tensor, "B W"], int], Float[Tensor, "B W V"]]


def extend_greedily(
    next_logits: NextLogits, prefix: Int[Tensor, "B P"], num_tokens: int, window: int
) -> Int[Tensor, "B L"]:
    """Append the most probable token `num_tokens` times; the model sees the last `window` tokens.

    The lowest id wins a tie.
    """
    tokens = prefix
    for _ in range(num_tokens):
        left = max(tokens.shape[1] - window, 0)
        last = next_logits(tokens[:, left:], left)[:, -1]
        tokens = torch.cat([tokens, last.argmax(-1, keepdim=True).to(tokens.dtype)], dim=1)
    return tokens


@torch.no_grad()
def greedy(model: Model, inputs: dict[str, Tensor], num_tokens: int) -> Int[Tensor, "B L"]:
    """The model's own prefix (`tokens` or `target`) with `num_tokens` more, each the most probable.

    Args:
        inputs: the keyword arguments of the model's call.
    """
    window = model.config.max_seq_len
    match model:
        case LanguageModel():
            prefix = inputs.get("prefix_mask")
            seen = None if prefix is None else F.pad(prefix, (0, num_tokens))

            def after_tokens(tokens, left):
                prefix = None if seen is None else seen[:, left : left + tokens.shape[1]]
                return model(tokens, prefix_mask=prefix)

            return extend_greedily(after_tokens, inputs["tokens"], num_tokens, window)
        case EncoderDecoder():
            source, source_mask = inputs["source"], inputs.get("source_mask")
            memory = model.encode(source, source_mask)

            def after_target(target, left):
                return model.decode(target, memory, source_mask)

            return extend_greedily(after_target, inputs["target"], num_tokens, window)
        case Encoder() | HeadedEncoder():
            raise ValueError("model: an encoder writes no tokens; give a decoder")
