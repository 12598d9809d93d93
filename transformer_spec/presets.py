"""Named models with the training set-up they come with."""

from dataclasses import dataclass, replace

from transformer_spec.config import (
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Learned,
    MixtureOfExperts,
    ModelConfig,
    PostNorm,
    PreNorm,
    RelativeBias,
    RMSNorm,
    Rotary,
    Sinusoidal,
)
from transformer_spec.fields import ConfigError, nearest
from transformer_spec.published import PUBLISHED
from transformer_spec.schedules import Constant, InverseSqrt, WarmupConstant
from transformer_spec.train_config import TrainConfig


@dataclass(frozen=True)
class Preset:
    """One line about it, the model, and how it is trained."""

    summary: str
    model: ModelConfig
    train: TrainConfig


# The sorting study: digits 1..10, pad 0, bos 11, eos 12 in a vocabulary of 15, sequences of 8.
# Its attention has no biases anywhere. It warms up from rate 0 at its first update, where we take
# the first rate above 0: our update n has the rate of its update n + 1.
SORT = Preset(
    "encoder-decoder that sorts eight numbers",
    ModelConfig(
        arch="encoder_decoder",
        vocab_size=15,
        max_seq_len=5000,
        d_model=128,
        d_ff=256,
        num_layers=3,
        num_decoder_layers=3,
        num_heads=4,
        position=Sinusoidal(),
        norm=LayerNorm(eps=1e-5),
        residual=PreNorm(),
        ffn=FeedForward(activation="relu"),
        head_bias=True,
        scale_embeddings=True,
        embed_dropout=0.1,
        attn_dropout=0.1,
        attn_out_dropout=0.1,
        ffn_hidden_dropout=0.1,
        ffn_out_dropout=0.1,
    ),
    TrainConfig(
        task="sort",
        batch_size=64,
        epochs=50,
        learning_rate=1e-3,
        schedule=WarmupConstant(warmup_steps=400),
        beta2=0.98,
        clip_norm=1.0,
    ),
)

# The GPT study. Where it differs from the paper: scores are scaled by n_embd**-0.5 although its
# text says sqrt(d_k), so they are sqrt(num_heads) too small; the dropout after the attention
# projection is defined and never applied; q, k and v have no bias, all else has; no dropout on the
# embeddings. Rate, decay (0.01, on every parameter) and betas are torch AdamW's defaults there.
CHAR_GPT = Preset(
    "small GPT over characters",
    ModelConfig(
        arch="decoder",
        vocab_size=103,
        max_seq_len=8,
        d_model=32,
        d_ff=4 * 32,
        num_layers=6,
        num_heads=4,
        position=Learned(),
        norm=LayerNorm(eps=1e-5),
        residual=PreNorm(),
        ffn=FeedForward(activation="relu"),
        out_bias=True,
        head_bias=True,
        attention_scale=32**-0.5,
        attn_dropout=0.2,
        ffn_out_dropout=0.2,
    ),
    TrainConfig(
        task="language_model",
        batch_size=32,
        steps=5000,
        learning_rate=1e-3,
        schedule=Constant(),
        weight_decay=0.01,
        decay_all=True,
        init="torch_default",
        log_every=100,
        eval_every=500,
    ),
)

CHAR_MODERN = Preset(
    "char-gpt's task with later parts: rotary, RMSNorm, SwiGLU, grouped heads, tied head",
    ModelConfig(
        arch="decoder",
        vocab_size=103,
        max_seq_len=64,
        d_model=96,
        d_ff=256,
        num_layers=4,
        num_heads=6,
        num_kv_heads=2,
        head_dim=32,
        position=Rotary(),
        norm=RMSNorm(eps=1e-6),
        residual=PreNorm(),
        ffn=GatedFeedForward(activation="silu"),
        ffn_bias=False,
        tie_embeddings=True,
    ),
    TrainConfig(
        task="language_model",
        batch_size=16,
        steps=2000,
        learning_rate=1e-3,
        schedule=WarmupConstant(warmup_steps=100),
        beta2=0.95,
        weight_decay=0.1,
        clip_norm=1.0,
        log_every=50,
        eval_every=500,
    ),
)

# Vaswani et al. 2017: Table 3, sections 5.3 and 5.4. Attention has no biases in its formulas. Its
# batches hold about 25,000 source and 25,000 target tokens of WMT 2014.
BASE = Preset(
    "the 2017 paper's base model",
    ModelConfig(
        arch="encoder_decoder",
        vocab_size=37000,
        max_seq_len=1024,
        d_model=512,
        d_ff=2048,
        num_layers=6,
        num_decoder_layers=6,
        num_heads=8,
        position=Sinusoidal(),
        norm=LayerNorm(eps=1e-6),
        residual=PostNorm(),
        ffn=FeedForward(activation="relu"),
        tie_embeddings=True,
        share_embeddings=True,
        scale_embeddings=True,
        embed_dropout=0.1,
        attn_out_dropout=0.1,
        ffn_out_dropout=0.1,
    ),
    TrainConfig(
        task=None,
        batch_size=64,
        steps=100_000,
        learning_rate=1.0,
        schedule=InverseSqrt(warmup_steps=4000),
        beta2=0.98,
        eps=1e-9,
        label_smoothing=0.1,
    ),
)

BIG = Preset(
    "the 2017 paper's big model",
    replace(
        BASE.model,
        d_model=1024,
        d_ff=4096,
        num_heads=16,
        embed_dropout=0.3,
        attn_out_dropout=0.3,
        ffn_out_dropout=0.3,
    ),
    replace(BASE.train, steps=300_000),
)

# Their data is not shipped, and training runs of this size need more than one file of text.
_PUBLISHED_TRAIN = replace(CHAR_MODERN.train, task=None)
# Its authors' weight of the balance loss.
_ROUTED_TRAIN = replace(_PUBLISHED_TRAIN, router_loss=0.02)


def _published(summary: str, model: ModelConfig) -> Preset:
    train = _ROUTED_TRAIN if isinstance(model.ffn, MixtureOfExperts) else _PUBLISHED_TRAIN
    # Raffel et al.'s scores are not scaled; their q is drawn smaller instead.
    init = "t5" if isinstance(model.position, RelativeBias) else "gpt2"
    return Preset(summary, model, replace(train, init=init))


PRESETS = {
    "sort": SORT,
    "char-gpt": CHAR_GPT,
    "char-modern": CHAR_MODERN,
    "transformer-base": BASE,
    "transformer-big": BIG,
} | {name: _published(*entry) for name, entry in PUBLISHED.items()}


def get(name: str) -> Preset:
    if name not in PRESETS:
        raise ConfigError(f"preset: no {name!r}; {nearest(name, PRESETS)}")
    return PRESETS[name]
