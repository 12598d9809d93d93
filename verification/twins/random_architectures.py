"""Whole architectures drawn at random, with inputs and masks that fit them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from transformer_spec import config as spec

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid")
NORMS = (spec.LayerNorm, spec.RMSNorm, partial(spec.RMSNorm, offset=1.0), spec.StdLayerNorm)
SCALINGS = (
    spec.NoScaling(),
    spec.LinearScaling(factor=3.0),
    spec.Llama3Scaling(original_max_seq_len=20),
    spec.YarnScaling(factor=4.0, original_max_seq_len=8),
)

Mask = spec.Causal | spec.AlternatingWindow | spec.PrefixLM


@dataclass(frozen=True)
class Architecture:
    """A config, the keyword arguments of one call, and a seed for its weights."""

    config: spec.ModelConfig
    inputs: dict[str, np.ndarray]
    seed: int


def draw_architecture(seed: int) -> Architecture:
    """The architecture of a seed; some query of it always weighs two different tokens."""
    rng = np.random.default_rng([seed, 37])
    config = _config(rng)
    while True:
        inputs = _inputs(rng, config)
        if _scores_matter(config, inputs):
            return Architecture(config, inputs, seed)


def _config(rng: np.random.Generator) -> spec.ModelConfig:
    def pick(*options):
        return options[rng.integers(len(options))]

    def coin() -> bool:
        return bool(rng.integers(2))

    arch = pick("encoder", "decoder", "encoder_decoder")
    two, lone = arch == "encoder_decoder", arch == "encoder"
    kv_heads = pick(1, 2, 3)
    heads = kv_heads * pick(1, 2, 3)
    mask = _mask(pick) if arch == "decoder" else spec.Causal(window=pick(None, 3) if two else None)
    position, head_dim = _position(pick, mask)
    headed = not lone or coin()
    tied = headed and coin()
    pooler = lone and coin()
    residual = pick(spec.PreNorm(), spec.PostNorm(), spec.SandwichNorm(), spec.DeepNorm(alpha=1.7))
    ffn = _ffn(pick, isinstance(residual, spec.SandwichNorm))
    return spec.ModelConfig(
        arch=arch,
        vocab_size=pick(17, 19, 23),
        max_seq_len=pick(11, 13),
        d_model=pick(7, 11, 13) if head_dim else max(heads * pick(3, 4, 5), 4),
        d_ff=pick(7, 11, 17),
        num_layers=pick(1, 2, 3),
        num_decoder_layers=pick(1, 2, 3) if two else None,
        num_heads=heads,
        num_kv_heads=pick(kv_heads, None),
        head_dim=head_dim,
        position=position,
        mask=mask,
        norm=pick(*NORMS)(eps=pick(1e-12, 1e-6, 1e-5, 1e-3, 1e-1)),
        residual=residual,
        ffn=ffn,
        qkv_bias=coin(),
        out_bias=coin(),
        ffn_bias=coin() and not isinstance(ffn, spec.MixtureOfExperts),
        head_bias=headed and coin(),
        tie_embeddings=tied,
        share_embeddings=two and coin(),
        scale_embeddings=coin(),
        scale_head=tied and coin(),
        embed_norm=coin(),
        num_token_types=pick(0, 2, 3) if lone else 0,
        masked_lm=lone and headed,
        pooler=pooler,
        next_sentence=pooler and coin(),
        attention_scale=pick(None, 0.2, 0.5),
        qk_norm=coin(),
        score_cap=pick(None, None, 5.0),
        logit_cap=pick(None, 5.0) if headed else None,
    )


def _mask(pick: Callable) -> Mask:
    """A window of one token leaves nothing to weigh."""
    return pick(
        spec.Causal(),
        spec.Causal(window=2),
        spec.Causal(window=5),
        spec.AlternatingWindow(window=2),
        spec.PrefixLM(),
        spec.PrefixLM(),
    )


def _position(pick: Callable, mask: Mask) -> tuple[Any, int | None]:
    """What fills the slot, and a head width that it can turn."""
    kind = pick("added", "added", "rotary", "rotary", "bias", "two channels")
    theta = pick(30.0, 10000.0)
    if kind == "two channels" and isinstance(mask, spec.PrefixLM):
        return spec.TwoChannelRotary(theta=theta), pick(4, 8)
    if kind == "rotary":
        scaling, interleaved = pick(*SCALINGS), pick(True, False)
        head_dim, fraction = pick((2, 1.0), (4, 1.0), (4, 0.5), (6, 0.7), (10, 0.4), (10, 1.0))
        slot = spec.Rotary(theta=theta, fraction=fraction, interleaved=interleaved, scaling=scaling)
        return slot, head_dim
    if kind == "bias":
        buckets = spec.RelativeBias(num_buckets=pick(4, 8), max_distance=pick(5, 7))
        return pick(spec.ALiBi(), buckets), pick(None, 2, 3, 5)
    return pick(spec.Sinusoidal(), spec.Learned(), spec.NoPosition()), pick(None, 2, 3, 5)


def _ffn(
    pick: Callable, normed: bool
) -> spec.FeedForward | spec.GatedFeedForward | spec.MixtureOfExperts:
    """A lone expert's weight must matter, or its router has no gradient to compare.

    It does not where it is normalized to 1, nor where a norm follows, which sees no scale.
    """
    activation = pick(*ACTIVATIONS)
    top_k, normalize = pick((2 if normed else 1, False), (2, False), (2, True), (3, True))
    experts = spec.MixtureOfExperts(
        num_experts=pick(3, 5), top_k=top_k, activation=activation, normalize=normalize
    )
    return pick(
        spec.FeedForward(activation=activation),
        spec.GatedFeedForward(activation=activation),
        experts,
    )


def _inputs(rng: np.random.Generator, config: spec.ModelConfig) -> dict[str, np.ndarray]:
    batch, length, keys = (int(rng.integers(3 if high > 4 else 1, high)) for high in (4, 8, 10))
    vocab = config.vocab_size
    if config.arch == "encoder_decoder":
        inputs = {
            "source": rng.integers(0, vocab, (batch, keys)),
            "target": rng.integers(0, vocab, (batch, length)),
        }
        masks = {
            "source_mask": _padding(rng, batch, keys),
            "target_mask": _padding(rng, batch, length),
        }
    else:
        inputs = {"tokens": rng.integers(0, vocab, (batch, length))}
        masks = _single_stack_inputs(rng, config, batch, length)
    return inputs | {name: mask for name, mask in masks.items() if rng.integers(2)}


def _single_stack_inputs(
    rng: np.random.Generator, config: spec.ModelConfig, batch: int, length: int
) -> dict[str, np.ndarray]:
    """Whatever else the model of a lone stack may be given."""
    heads = (1, config.num_heads)[rng.integers(2)]
    mask = rng.random((batch, heads, length, length)) < 0.7
    mask[0, ..., -1, :] = False  # the last query of the first row may attend to nothing
    channels = (2,) if isinstance(config.position, spec.TwoChannelRotary) else ()
    given = {
        "token_mask": _padding(rng, batch, length),
        "mask": mask,
    }
    # Distances drawn at random may all share a bucket, and then softmax sees no bias.
    if not isinstance(config.position, spec.RelativeBias):
        shape = (batch, *channels, length)
        given["positions"] = rng.integers(0, config.max_seq_len, shape)
    if config.num_token_types:
        given["token_types"] = rng.integers(0, config.num_token_types, (batch, length))
    if isinstance(config.mask, spec.PrefixLM):
        given["prefix_mask"] = np.arange(length) < rng.integers(0, length + 1, (batch, 1))
    return given


def _padding(rng: np.random.Generator, batch: int, length: int) -> np.ndarray:
    """Each row padded on the left, on the right or on both sides, with a token left over."""
    left = rng.integers(0, 3, batch)[:, None]
    right = length - rng.integers(0, 3, batch)[:, None]
    at = np.arange(length)
    return ((at >= left) & (at < right)) | (at == np.minimum(left, length - 1))


def _scores_matter(config: spec.ModelConfig, inputs: dict[str, np.ndarray]) -> bool:
    """Whether in every stack some query weighs two different tokens.

    Where none does, softmax has nothing to weigh, and q and k have no gradient to compare.
    """
    stacks = {"tokens": "token_mask", "source": "source_mask", "target": "target_mask"}
    return all(
        _weighs_two(config, inputs[name], inputs.get(mask), inputs.get("mask"))
        for name, mask in stacks.items()
        if name in inputs
    )


def _weighs_two(
    config: spec.ModelConfig, ids: np.ndarray, padding: np.ndarray | None, mask: np.ndarray | None
) -> bool:
    """Asked of causal queries with the config's window, which see no more than any others.

    Under a relative bias the two must stand in different buckets, as neighbours always do.
    """
    batch, length = ids.shape
    seen = np.tri(length, dtype=bool)[None, None] & (True if mask is None else mask)
    window = None if isinstance(config.mask, spec.PrefixLM) else config.mask.window
    if isinstance(config.position, spec.RelativeBias):
        window = 2
    if window is not None:
        seen = seen & ~np.tri(length, k=-window, dtype=bool)
    if padding is not None:
        seen = seen & padding[:, None, None]
    seen = np.broadcast_to(seen, (batch, seen.shape[1], length, length))
    return any(
        len(np.unique(ids[row][keys])) > 1
        for row in range(batch)
        for keys in seen[row].reshape(-1, length)
    )
