"""ChatGLM-6B, the first: what its published code says, written out by hand.

transformers has no class of it and neither its code nor its weights are here. Positions and masks
are literals, worked out by hand from `get_position_ids`, `get_masks` and the tokenizer's `_pad` of
its modeling_chatglm.py and tokenization_chatglm.py (the releases since May 2023: before them a text
with [gMASK] kept counting on the first channel). The model is its block, its rotation and its head
in plain NumPy, under its own tensor names, held against both twins forward. What that cannot show:
that the description is right where we misread it, and its gradients, which the twins share only
with each other.

A row is its context, of which [gMASK] is the last token, the start token, and the answer.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer
import flax_transformer.masks as flax_masks
import flax_transformer.stacks as flax_stacks
import torch_reference
import torch_reference.masks as torch_masks
import torch_reference.stacks as torch_stacks
from parity.judge.errors import FLOAT64_TOLERANCE, difference
from parity.observe.flax_side import compile_fast
from parity.observe.weights import torch_parameters
from transformer_hub import families
from verification.twins.hostile import tokens
from verification.twins.pair import Pair

T, F = True, False
LAYERS, HEADS, HEAD = 2, 3, 8
THEIRS = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "vocab_size": 23,
    "hidden_size": HEADS * HEAD,
    "inner_hidden_size": 29,
    "num_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_sequence_length": 13,
    "layernorm_epsilon": 1e-3,
    "position_encoding_2d": True,
}
FAMILY = families.find(THEIRS)
CONFIG = FAMILY.read_config(THEIRS)

# Contexts of 3, 4 and 2 tokens; the second and third row are padded on the left.
TOKENS = np.array([[T, T, T, T, T, T, T], [F, F, T, T, T, T, T], [F, T, T, T, T, T, T]])
CONTEXT = np.array([[T, T, T, F, F, F, F], [F, F, T, T, T, T, F], [F, T, T, F, F, F, F]])
PLACES = [[0, 1, 2, 2, 2, 2, 2], [0, 0, 0, 1, 2, 3, 3], [0, 0, 1, 1, 1, 1, 1]]
ANSWERS = [[0, 0, 0, 1, 2, 3, 4], [0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 2, 3, 4]]
SEEN = [
    [
        [T, T, T, F, F, F, F],
        [T, T, T, F, F, F, F],
        [T, T, T, F, F, F, F],
        [T, T, T, T, F, F, F],
        [T, T, T, T, T, F, F],
        [T, T, T, T, T, T, F],
        [T, T, T, T, T, T, T],
    ],
    [
        [F, F, F, F, F, F, F],
        [F, F, F, F, F, F, F],
        [F, F, T, T, T, T, F],
        [F, F, T, T, T, T, F],
        [F, F, T, T, T, T, F],
        [F, F, T, T, T, T, F],
        [F, F, T, T, T, T, T],
    ],
    [
        [F, F, F, F, F, F, F],
        [F, T, T, F, F, F, F],
        [F, T, T, F, F, F, F],
        [F, T, T, T, F, F, F],
        [F, T, T, T, T, F, F],
        [F, T, T, T, T, T, F],
        [F, T, T, T, T, T, T],
    ],
]
IDS = np.where(TOKENS, tokens(23, *TOKENS.shape), 0)
TWINS = pytest.mark.parametrize(
    ("stacks", "masks", "array"),
    [(flax_stacks, flax_masks, jnp.asarray), (torch_stacks, torch_masks, torch.tensor)],
    ids=["flax", "torch"],
)


@TWINS
def test_two_channels_of_positions(stacks, masks, array):
    """The first stays at [gMASK] from the start token on, from where the second counts."""
    ids, keep, context = array(IDS), array(TOKENS), array(CONTEXT)
    positions = stacks.token_positions(CONFIG, ids, keep, None, context)
    np.testing.assert_array_equal(positions, np.stack([PLACES, ANSWERS], axis=1))


@TWINS
def test_every_token_sees_the_whole_context(stacks, masks, array):
    """And of the answer no later token. What a query at padding sees is nobody's to compare."""
    ids, keep, context = array(IDS), array(TOKENS), array(CONTEXT)
    own = masks.decoder_mask(CONFIG.mask, *[array(np.arange(IDS.shape[1]))] * 2, context)
    seen = np.asarray(stacks.self_attention_mask(CONFIG, ids, keep, None, own))
    np.testing.assert_array_equal(seen[:, 0][TOKENS], np.array(SEEN)[TOKENS])


def test_model_in_numpy():
    """Both twins compute what its published formulas give, under its own names, to 1e-12."""
    inputs = {"tokens": IDS, "token_mask": TOKENS, "prefix_mask": CONTEXT}
    models = flax_transformer.build_model(CONFIG), torch_reference.build_model(CONFIG)
    pair = Pair(*models, inputs)
    theirs = dict(FAMILY.layout(CONFIG).to_theirs(torch_parameters(pair.torch)))
    expected = published(theirs, IDS)[TOKENS]
    arrays = {name: jnp.asarray(x) for name, x in inputs.items()}
    flax = compile_fast(lambda params: pair.call_flax(params, **arrays))(pair.params)
    reference = pair.call_torch(**{name: torch.tensor(x) for name, x in inputs.items()})
    for logits in (np.asarray(flax), reference.detach().numpy()):
        assert difference("logits", logits[TOKENS], expected).error <= FLOAT64_TOLERANCE


def published(tensors: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The model: norm, alpha times that plus attention, norm, alpha times that plus the MLP."""
    alpha = (2 * LAYERS) ** 0.5
    x = tensors["transformer.word_embeddings.weight"][ids]
    for i in range(LAYERS):
        layer = f"transformer.layers.{i}"
        h = norm(tensors, f"{layer}.input_layernorm", x)
        x = alpha * h + attention(tensors, f"{layer}.attention", h, i)
        h = norm(tensors, f"{layer}.post_attention_layernorm", x)
        hidden = gelu(linear(tensors, f"{layer}.mlp.dense_h_to_4h", h))
        x = alpha * h + linear(tensors, f"{layer}.mlp.dense_4h_to_h", hidden)
    return norm(tensors, "transformer.final_layernorm", x) @ tensors["lm_head.weight"].T


def attention(tensors: dict[str, np.ndarray], name: str, x: np.ndarray, layer: int) -> np.ndarray:
    """q, k and v of each head lie side by side; each half of q and k turns by its own channel.

    Scores are divided by sqrt(H) (layer + 1), and multiplied by layer + 1 once masked by -10000.
    """
    batch, length, _ = x.shape
    fused = linear(tensors, f"{name}.query_key_value", x).reshape(batch, length, HEADS, 3 * HEAD)
    q, k, v = np.split(fused, 3, axis=-1)
    half = HEAD // 2
    q, k = (
        np.concatenate([turned(p[..., :half], PLACES), turned(p[..., half:], ANSWERS)], axis=-1)
        for p in (q, k)
    )
    scores = np.einsum("btnh,bsnh->bnts", q, k) / (HEAD**0.5 * (layer + 1))
    scores = np.where(np.array(SEEN)[:, None], scores, -10000.0) * (layer + 1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    context = np.einsum("bnts,bsnh->btnh", weights, v).reshape(batch, length, -1)
    return linear(tensors, f"{name}.dense", context)


def turned(x: np.ndarray, positions: list[list[int]]) -> np.ndarray:
    """Dimension i and i + W/2 of W as a complex number, times exp(i position 10000**(-2i / W))."""
    pairs = x.shape[-1] // 2
    frequencies = 10000.0 ** (-np.arange(pairs) / pairs)
    angles = np.array(positions)[:, :, None, None] * frequencies
    z = (x[..., :pairs] + 1j * x[..., pairs:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], axis=-1)


def linear(tensors: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def norm(tensors: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    centered = x - x.mean(axis=-1, keepdims=True)
    normed = centered / np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + 1e-3)
    return normed * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    """Its tanh form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
