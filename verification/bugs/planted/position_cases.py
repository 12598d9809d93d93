"""The pairs on which mistakes in rotations, distances, windows and prefixes show."""

from dataclasses import replace

import numpy as np

from transformer_spec.config import (
    Causal,
    DeepNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Llama3Scaling,
    ModelConfig,
    PrefixLM,
    PreNorm,
    RelativeBias,
    RMSNorm,
    Rotary,
    SandwichNorm,
    TwoChannelRotary,
)
from verification.bugs.planted.case import Case, ids, padded

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

POSITION_CASES: dict[str, Case] = {
    "rotary": Case(_ROTARY, _ROTARY_INPUTS),
    "partial": Case(_PARTIAL, _PARTIAL_INPUTS),
    "relative": Case(_RELATIVE, _RELATIVE_INPUTS),
    "channels": Case(_CHANNELS, _CHANNELS_INPUTS),
    "cached": Case(_CACHED, _CACHED_INPUTS, chunks=(3, 3, 1)),
    "steps": Case(_STEPS, _STEPS_INPUTS, chunks=(1, 1, 1, 1)),
}
