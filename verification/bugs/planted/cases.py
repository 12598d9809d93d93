"""The pairs on which planted bugs show: a config and inputs each.

Axes differ in size, ids hold many zeros, masks leave some queries without a key.
"""

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
from verification.bugs.planted.case import Case, ids, packed, padded
from verification.bugs.planted.position_cases import POSITION_CASES
from verification.twins.hostile import hostile_config

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

CASES: dict[str, Case] = {
    "decoder": Case(_DECODER, _DECODER_INPUTS),
    "encoder_decoder": Case(_ENCODER_DECODER, _ENCODER_DECODER_INPUTS),
    "modern": Case(_MODERN, _MODERN_INPUTS),
    "post": Case(_POST, _POST_INPUTS),
    "deep": Case(_DEEP, _DEEP_INPUTS),
    "scaled_head": Case(_SCALED_HEAD, _SCALED_HEAD_INPUTS),
    **POSITION_CASES,
}
