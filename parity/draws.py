"""Whole architectures drawn at random, with inputs and masks that fit them."""

from dataclasses import dataclass

import numpy as np

from transformer_spec import config as spec

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid")
POSITIONS = (spec.Sinusoidal(), spec.Learned(), spec.NoPosition())
NORMS = (spec.LayerNorm, spec.RMSNorm, spec.StdLayerNorm)


@dataclass(frozen=True)
class Drawn:
    """A config, the keyword arguments of one call, and a seed for its weights."""

    config: spec.ModelConfig
    inputs: dict[str, np.ndarray]
    seed: int


def draw(seed: int) -> Drawn:
    """The architecture of a seed; some query of it always weighs two different tokens."""
    rng = np.random.default_rng([seed, 37])
    config = _config(rng)
    while True:
        inputs = _inputs(rng, config)
        if _scores_matter(inputs):
            return Drawn(config, inputs, seed)


def _config(rng: np.random.Generator) -> spec.ModelConfig:
    def pick(*options):
        return options[rng.integers(len(options))]

    def coin() -> bool:
        return bool(rng.integers(2))

    arch = pick("encoder", "decoder", "encoder_decoder")
    two, headed = arch == "encoder_decoder", arch != "encoder"
    kv_heads = pick(1, 2, 3)
    heads = kv_heads * pick(1, 2, 3)
    head_dim = pick(None, 2, 3, 5)
    tied = headed and coin()
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
        position=pick(*POSITIONS),
        norm=pick(*NORMS)(eps=pick(1e-12, 1e-6, 1e-5, 1e-3, 1e-1)),
        residual=pick(spec.PreNorm(), spec.PostNorm()),
        ffn=pick(spec.FeedForward, spec.GatedFeedForward)(activation=pick(*ACTIVATIONS)),
        qkv_bias=coin(),
        out_bias=coin(),
        ffn_bias=coin(),
        head_bias=headed and not tied and coin(),
        tie_embeddings=tied,
        share_embeddings=two and coin(),
        scale_embeddings=coin(),
        attention_scale=pick(None, 0.2, 0.5),
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
        heads = (1, config.num_heads)[rng.integers(2)]
        mask = rng.random((batch, heads, length, length)) < 0.7
        mask[0, ..., -1, :] = False  # the last query of the first row may attend to nothing
        masks = {"token_mask": _padding(rng, batch, length), "mask": mask}
    return inputs | {name: mask for name, mask in masks.items() if rng.integers(2)}


def _padding(rng: np.random.Generator, batch: int, length: int) -> np.ndarray:
    """Each row padded on the left, on the right or on both sides, with a token left over."""
    left = rng.integers(0, 3, batch)[:, None]
    right = length - rng.integers(0, 3, batch)[:, None]
    at = np.arange(length)
    return ((at >= left) & (at < right)) | (at == np.minimum(left, length - 1))


def _scores_matter(inputs: dict[str, np.ndarray]) -> bool:
    """Whether in every stack some query weighs two different tokens.

    Where none does, softmax has nothing to weigh, and q and k have no gradient to compare.
    """
    stacks = {"tokens": "token_mask", "source": "source_mask", "target": "target_mask"}
    return all(
        _weighs_two(inputs[name], inputs.get(mask), inputs.get("mask"))
        for name, mask in stacks.items()
        if name in inputs
    )


def _weighs_two(ids: np.ndarray, padding: np.ndarray | None, mask: np.ndarray | None) -> bool:
    """Asked of causal queries, which see no more than any others."""
    batch, length = ids.shape
    seen = np.tri(length, dtype=bool)[None, None] & (True if mask is None else mask)
    if padding is not None:
        seen = seen & padding[:, None, None]
    seen = np.broadcast_to(seen, (batch, seen.shape[1], length, length))
    return any(
        len(np.unique(ids[row][keys])) > 1
        for row in range(batch)
        for keys in seen[row].reshape(-1, length)
    )
