"""The pairs on which seeded bugs show: a config, inputs, and how they are read.

Axes differ in size, ids hold many zeros, masks leave some queries without a key.
"""

from dataclasses import dataclass, replace

import numpy as np

from transformer_spec.config import (
    Causal,
    DeepNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Learned,
    Llama3Scaling,
    ModelConfig,
    PostNorm,
    PrefixLM,
    PreNorm,
    RelativeBias,
    RMSNorm,
    Rotary,
    SandwichNorm,
    Sinusoidal,
    StdLayerNorm,
    TwoChannelRotary,
)
from verification.twins.hostile import hostile_config


@dataclass(frozen=True)
class Case:
    """One model and the keyword arguments of its call.

    Args:
        chunks: how many tokens each call reads, of a model with a key/value cache.
    """

    config: ModelConfig
    inputs: dict[str, np.ndarray]
    chunks: tuple[int, ...] = ()


def ids(vocab_size: int, *shape: int) -> np.ndarray:
    """Random ids, a third of them 0: the row that a padding index would freeze."""
    rng = np.random.default_rng([19, *shape])
    return np.where(rng.random(shape) < 1 / 3, 0, rng.integers(0, vocab_size, shape))


def padded(length: int, *ends: tuple[int, int]) -> np.ndarray:
    """A token mask with so much padding on the left and on the right of each row."""
    at = np.arange(length)
    return np.array([(at >= left) & (at < length - right) for left, right in ends])


def packed(length: int, *starts: list[int]) -> dict[str, np.ndarray]:
    """The mask and the positions of rows whose documents begin at 0 and at `starts`."""
    at = np.arange(length)
    begins = np.array([[max(s for s in (0, *row) if s <= t) for t in at] for row in starts])
    same = begins[:, :, None] == begins[:, None, :]
    return {"mask": same[:, None], "positions": at - begins}


_DECODER = hostile_config(head_bias=True)
_DECODER_INPUTS = {
    "tokens": ids(23, 3, 11),
    "token_mask": padded(11, (2, 0), (0, 3), (1, 1)),
    **packed(11, [6], [4], [3, 8]),
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
    "source": ids(19, 3, 7),
    "target": ids(19, 3, 7)[::-1].copy(),
    "source_mask": padded(7, (2, 0), (0, 2), (1, 1)),
    "target_mask": padded(7, (0, 1), (1, 0), (0, 3)),
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
_MODERN_INPUTS = {"tokens": ids(29, 3, 11)}

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
_POST_INPUTS = {"tokens": ids(113, 5, 5)}

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
_DEEP_INPUTS = {"tokens": ids(11, 2, 3)}

# A norm whose parameter is its weight's distance from 1, and a scaled tied head.
_SCALED_HEAD = ModelConfig(
    arch="decoder",
    vocab_size=17,
    max_seq_len=7,
    d_model=10,
    d_ff=11,
    num_layers=1,
    num_heads=2,
    head_dim=3,
    position=Learned(),
    norm=RMSNorm(offset=1.0),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="gelu_tanh"),
    ffn_bias=False,
    tie_embeddings=True,
    scale_head=True,
)
_SCALED_HEAD_INPUTS = {"tokens": ids(17, 3, 7)}

# Five pairs: two short wavelengths that stay, three long ones that are divided. T > window.
_ROTARY = ModelConfig(
    arch="decoder",
    vocab_size=29,
    max_seq_len=17,
    d_model=13,
    d_ff=19,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=10,
    position=Rotary(theta=500000.0, scaling=Llama3Scaling(original_max_seq_len=400)),
    mask=Causal(window=5),
    norm=RMSNorm(),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="silu"),
    ffn_bias=False,
)
_ROTARY_INPUTS = {"tokens": ids(29, 3, 11)}

# 8 of a head's 11 dimensions turn: halved from layer to layer, there is 4, then 2.
_PARTIAL = ModelConfig(
    arch="decoder",
    vocab_size=23,
    max_seq_len=17,
    d_model=13,
    d_ff=19,
    num_layers=3,
    num_heads=3,
    head_dim=11,
    position=Rotary(fraction=0.75, interleaved=True),
    norm=RMSNorm(),
    residual=SandwichNorm(),
    ffn=GatedFeedForward(activation="silu"),
    qkv_bias=True,
    ffn_bias=False,
)
_PARTIAL_INPUTS = {"tokens": ids(23, 5, 7), "token_mask": padded(7, *[(1, 0), (0, 2)] * 2, (0, 0))}

# Distances beyond the exact buckets, and nearly all that are shared. Equal lengths: a bias of the
# target's fits the source too.
_RELATIVE = ModelConfig(
    arch="encoder_decoder",
    vocab_size=17,
    max_seq_len=13,
    d_model=7,
    d_ff=11,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=5,
    head_dim=3,
    position=RelativeBias(num_buckets=8, max_distance=11),
    norm=RMSNorm(eps=1e-6),
    residual=PreNorm(),
    ffn=FeedForward(activation="relu"),
    ffn_bias=False,
    share_embeddings=True,
    tie_embeddings=True,
    attention_scale=1.0,
)
_RELATIVE_INPUTS = {
    "source": ids(17, 3, 13),
    "target": ids(17, 3, 13)[::-1].copy(),
    "source_mask": padded(13, (2, 0), (0, 3), (0, 0)),
    "target_mask": padded(13, (0, 1), (0, 0), (0, 2)),
}

# Some prefixes are shorter than the batch is large: they are row numbers too.
_CHANNELS = ModelConfig(
    arch="decoder",
    vocab_size=23,
    max_seq_len=13,
    d_model=17,
    d_ff=19,
    num_layers=2,
    num_heads=3,
    head_dim=12,
    position=TwoChannelRotary(),
    mask=PrefixLM(),
    norm=LayerNorm(),
    residual=DeepNorm(alpha=2.0),
    ffn=FeedForward(activation="gelu_tanh"),
    qkv_bias=True,
    out_bias=True,
)
_CHANNELS_INPUTS = {
    "tokens": ids(23, 5, 11),
    "prefix_mask": np.arange(11) < np.array([[2], [3], [7], [4], [6]]),
}

# Three calls: a part, another of the same length, and a token that is last and alone.
_CACHED = ModelConfig(
    arch="decoder",
    vocab_size=19,
    max_seq_len=7,
    d_model=11,
    d_ff=13,
    num_layers=1,
    num_heads=6,
    num_kv_heads=2,
    head_dim=4,
    position=Rotary(),
    norm=RMSNorm(),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="silu"),
    ffn_bias=False,
)
_CACHED_INPUTS = {"tokens": ids(19, 3, 7)}

# A target that is read token by token.
_STEPS = replace(_RELATIVE, num_layers=1, num_decoder_layers=1)
_STEPS_INPUTS = {
    "source": ids(17, 3, 5),
    "target": ids(17, 3, 4),
    "source_mask": padded(5, (2, 0), (0, 3), (0, 0)),
}

CASES: dict[str, Case] = {
    "decoder": Case(_DECODER, _DECODER_INPUTS),
    "encoder_decoder": Case(_ENCODER_DECODER, _ENCODER_DECODER_INPUTS),
    "modern": Case(_MODERN, _MODERN_INPUTS),
    "post": Case(_POST, _POST_INPUTS),
    "deep": Case(_DEEP, _DEEP_INPUTS),
    "scaled_head": Case(_SCALED_HEAD, _SCALED_HEAD_INPUTS),
    "rotary": Case(_ROTARY, _ROTARY_INPUTS),
    "partial": Case(_PARTIAL, _PARTIAL_INPUTS),
    "relative": Case(_RELATIVE, _RELATIVE_INPUTS),
    "channels": Case(_CHANNELS, _CHANNELS_INPUTS),
    "cached": Case(_CACHED, _CACHED_INPUTS, chunks=(3, 3, 1)),
    "decoding": Case(_CACHED, {"tokens": ids(19, 3, 5)}, chunks=(3, 1, 1)),
    # Five slots for seven tokens: the window of 3 keys, and a chunk of 3 queries.
    "rolling": Case(replace(_CACHED, mask=Causal(window=3)), _CACHED_INPUTS, chunks=(3, 3, 1)),
    "steps": Case(_STEPS, _STEPS_INPUTS, chunks=(1, 1, 1, 1)),
}
