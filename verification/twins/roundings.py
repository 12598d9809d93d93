"""How many roundings each component takes, counted from its config.

`parity.judge.precision` says why.
"""

from parity.judge.precision import LIBRARY_ROUNDINGS, Roundings
from transformer_spec.config import (
    ALiBi,
    DeepNorm,
    FeedForward,
    Learned,
    MixtureOfExperts,
    ModelConfig,
    RelativeBias,
    RMSNorm,
    Rotary,
    SandwichNorm,
    Sinusoidal,
    TwoChannelRotary,
)

# Roundings of each activation as its formula is written: 1 / (1 + exp(-x)) by a library, times x;
# x, its constant, erfc, 0.5 and their products; two constants and nine operations around tanh.
ACTIVATIONS = {"relu": 0, "sigmoid": 4, "silu": 5, "gelu": 7, "gelu_tanh": 15}


def dense(terms: int, bias: bool = False) -> Roundings:
    """A product of `terms` terms, stored (Linen does, torch adds in the accumulator), and a sum."""
    return Roundings(1 + bias, terms)


def norm(width: int, offset: bool = False) -> Roundings:
    """Two sums over the features and six operations, all wide; the result is rounded once.

    An offset of the weight is one wide sum more.
    """
    return Roundings(1, 2 * width + 6 + offset)


def own_norm(config: ModelConfig, width: int | None = None) -> Roundings:
    """That of a norm layer of the config, over d_model features or another width."""
    offset = isinstance(config.norm, RMSNorm) and config.norm.offset != 0
    return norm(config.d_model if width is None else width, offset)


def rotation(config: ModelConfig) -> Roundings:
    """Tables of two rounded cosines, their product, sum and factor; a product and a sum with q.

    All are wide, and the turned query is rounded once.
    """
    turned = isinstance(config.position, Rotary | TwoChannelRotary)
    return Roundings(1, 2 + 3 + 2) * turned


def soft_cap(cap: float | None) -> Roundings:
    """A quotient, tanh by a library and a product, where there is a cap."""
    return Roundings(2 + LIBRARY_ROUNDINGS) * (cap is not None)


def score_bias(config: ModelConfig) -> Roundings:
    """The sum with the scores, of a bias that is rounded to their type unless it is a parameter."""
    match config.position:
        case ALiBi():
            return Roundings(2)
        case RelativeBias():
            return Roundings(1)
        case _:
            return Roundings()


def attention(config: ModelConfig, keys: int, memory: bool = False) -> Roundings:
    """Query, its rotation, scores times a rounded scale, their bias, softmax, context, output.

    Queries and keys may be normalized, scores capped. Positions have no part in the attention to a
    memory; masks are exact.
    """
    c = config
    scores = dense(c.head_size) + Roundings(2) + soft_cap(c.score_cap)
    placed = Roundings() if memory else rotation(c) + score_bias(c)
    softmax = Roundings(1, keys + LIBRARY_ROUNDINGS + 2)
    placed = placed + own_norm(c, c.head_size) * c.qk_norm
    ends = dense(c.d_model, c.qkv_bias) + dense(c.num_heads * c.head_size, c.out_bias)
    return scores + placed + softmax + dense(keys) + ends


def feed_forward(config: ModelConfig) -> Roundings:
    """Up, activation, the gate's product, down; for experts, the weighted sum over them.

    The way through their router is shorter: a product, a softmax and the same sum.
    """
    bias, gated = config.ffn_bias, not isinstance(config.ffn, FeedForward)
    middle = Roundings(ACTIVATIONS[config.ffn.activation] + gated)
    own = dense(config.d_model, bias) + middle + dense(config.d_ff, bias)
    match config.ffn:
        case MixtureOfExperts(num_experts=experts):
            return own + dense(experts)
        case _:
            return own


def block(config: ModelConfig, cross_attention: bool, keys: int) -> Roundings:
    """Every sublayer with its norms and its residual sum, where DeepNorm scales the other term."""
    norms = own_norm(config) * (2 if isinstance(config.residual, SandwichNorm) else 1)
    around = norms + Roundings(3 if isinstance(config.residual, DeepNorm) else 1)
    own = attention(config, keys) + feed_forward(config) + around * 2
    cross = (attention(config, keys, memory=True) + around) * cross_attention
    return own + cross


def router(config: ModelConfig, keys: int) -> Roundings:
    """From the inputs of a lone stack to the logits of its last router."""
    before = attention(config, keys) + own_norm(config) * 2 + Roundings(1)
    earlier = block(config, False, keys) * (config.num_layers - 1)
    return embedding(config) + earlier + before + dense(config.d_model)


def embedding(config: ModelConfig) -> Roundings:
    """A rounded scale and its product, a rounded position and its sum, a segment's sum, a norm.

    A lookup alone is exact.
    """
    placed = isinstance(config.position, Learned | Sinusoidal)
    sums = 2 * config.scale_embeddings + 2 * placed + (config.num_token_types > 0)
    return Roundings(sums) + own_norm(config) * config.embed_norm


def head(config: ModelConfig) -> Roundings:
    """A rounded scale and its product, the table, a bias, a cap."""
    scaled = Roundings(2 * config.scale_head)
    return scaled + dense(config.d_model, config.head_bias) + soft_cap(config.logit_cap)


def encoder_heads(config: ModelConfig) -> Roundings:
    """The longer of two ways: a transform, its activation, a norm and the head; or the pooler."""
    if config.masked_lm:
        transform = dense(config.d_model, True) + Roundings(ACTIVATIONS[config.ffn.activation])
        return transform + own_norm(config) + head(config)
    pooled = dense(config.d_model, True) + Roundings(LIBRARY_ROUNDINGS)
    sentence = dense(config.d_model, True) * config.next_sentence
    return (pooled + sentence) * config.pooler


def model(config: ModelConfig, keys: int) -> Roundings:
    """Embeddings, all blocks and final norms, the head; behind an encoder stands its decoder."""
    final = own_norm(config) * config.has_final_norm
    own = embedding(config) + block(config, False, keys) * config.num_layers + final
    if config.arch == "encoder":
        return own + encoder_heads(config)
    if config.arch == "encoder_decoder":
        own = own + block(config, True, keys) * (config.num_decoder_layers or 0) + final
    return own + head(config)


def dropouts(config: ModelConfig) -> Roundings:
    """A rounded share that is kept and its quotient, at every place of the longest path."""
    decoder = 6 * (config.num_decoder_layers or 0)
    places = 1 + 4 * config.num_layers + decoder + (config.arch == "encoder_decoder")
    return Roundings(2 * places)


def loss(classes: int, tokens: int) -> Roundings:
    """Log-softmax, the smoothed target and the mean over tokens, all wide."""
    return Roundings(0, 2 * classes + tokens + 2 * LIBRARY_ROUNDINGS + 4)
