"""The pairs on which planted bugs show: a config and inputs each.

Axes differ in size, ids hold many zeros, masks leave some queries without a key.
"""

from dataclasses import dataclass

import numpy as np

from parity.hostile import hostile_config
from transformer_spec.config import (
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Learned,
    ModelConfig,
    PostNorm,
    PreNorm,
    RMSNorm,
    Sinusoidal,
    StdLayerNorm,
)


@dataclass(frozen=True)
class Case:
    """One model and the keyword arguments of its call."""

    config: ModelConfig
    inputs: dict[str, np.ndarray]


def _ids(vocab_size: int, *shape: int) -> np.ndarray:
    """Random ids, a third of them 0: the row that a padding index would freeze."""
    rng = np.random.default_rng([19, *shape])
    return np.where(rng.random(shape) < 1 / 3, 0, rng.integers(0, vocab_size, shape))


def _padded(length: int, *ends: tuple[int, int]) -> np.ndarray:
    """A token mask with so much padding on the left and on the right of each row."""
    at = np.arange(length)
    return np.array([(at >= left) & (at < length - right) for left, right in ends])


def _packed(length: int, *starts: list[int]) -> dict[str, np.ndarray]:
    """The mask and the positions of rows whose documents begin at 0 and at `starts`."""
    at = np.arange(length)
    begins = np.array([[max(s for s in (0, *row) if s <= t) for t in at] for row in starts])
    same = begins[:, :, None] == begins[:, None, :]
    return {"mask": same[:, None], "positions": at - begins}


_DECODER = hostile_config(head_bias=True)
_DECODER_INPUTS = {
    "tokens": _ids(23, 3, 11),
    "token_mask": _padded(11, (2, 0), (0, 3), (1, 1)),
    **_packed(11, [6], [4], [3, 8]),
}

_ENCODER_DECODER = ModelConfig(
    arch="encoder_decoder",
    vocab_size=19,
    max_seq_len=11,
    d_model=13,
    d_ff=17,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=5,
    head_dim=3,
    position=Sinusoidal(),
    norm=StdLayerNorm(eps=1e-3),
    residual=PreNorm(),
    ffn=FeedForward(activation="relu"),
    scale_embeddings=True,
    share_embeddings=True,
    tie_embeddings=True,
)
# Equal lengths: with others the target's mask does not fit the source, and a mix-up is loud.
_ENCODER_DECODER_INPUTS = {
    "source": _ids(19, 3, 7),
    "target": _ids(19, 3, 7)[::-1].copy(),
    "source_mask": _padded(7, (2, 0), (0, 2), (1, 1)),
    "target_mask": _padded(7, (0, 1), (1, 0), (0, 3)),
}

# Narrower than its sequence is long: a buffer sized by the width is too small.
_MODERN = ModelConfig(
    arch="decoder",
    vocab_size=29,
    max_seq_len=13,
    d_model=7,
    d_ff=17,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=5,
    position=Learned(),
    norm=RMSNorm(),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="silu"),
    ffn_bias=False,
    tie_embeddings=True,
)
_MODERN_INPUTS = {"tokens": _ids(29, 3, 11)}

# 3 heads of 7 are d_model: the projections are square. More than 100 ids: -100 is an index.
_POST = ModelConfig(
    arch="decoder",
    vocab_size=113,
    max_seq_len=13,
    d_model=21,
    d_ff=17,
    num_layers=2,
    num_heads=3,
    position=Learned(),
    norm=LayerNorm(eps=1e-3),
    residual=PostNorm(),
    ffn=FeedForward(activation="gelu_tanh"),
    qkv_bias=True,
    out_bias=True,
    head_bias=True,
    attention_scale=1.0,
    embed_dropout=0.1,
    attn_dropout=0.3,
    attn_out_dropout=0.2,
    ffn_hidden_dropout=0.35,
    ffn_out_dropout=0.15,
)
# As many rows as tokens: attention along the wrong axis fits its mask.
_POST_INPUTS = {"tokens": _ids(113, 5, 5)}

# More than ten layers: as strings, "10" sorts before "2".
_DEEP = ModelConfig(
    arch="decoder",
    vocab_size=11,
    max_seq_len=5,
    d_model=8,
    d_ff=7,
    num_layers=11,
    num_heads=2,
    position=Learned(),
    norm=LayerNorm(),
    residual=PreNorm(),
    ffn=FeedForward(activation="relu"),
)
_DEEP_INPUTS = {"tokens": _ids(11, 2, 3)}

CASES: dict[str, Case] = {
    "decoder": Case(_DECODER, _DECODER_INPUTS),
    "encoder_decoder": Case(_ENCODER_DECODER, _ENCODER_DECODER_INPUTS),
    "modern": Case(_MODERN, _MODERN_INPUTS),
    "post": Case(_POST, _POST_INPUTS),
    "deep": Case(_DEEP, _DEEP_INPUTS),
}
