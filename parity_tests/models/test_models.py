"""Whole models: every preset's architecture, causality, padding, packing, jit = eager."""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer
import torch_reference
from parity.judge.errors import difference, differences
from parity.observe import weights
from parity.observe.flax_side import compile_fast
from transformer_spec import parameters
from transformer_spec.config import (
    Causal,
    GatedFeedForward,
    ModelConfig,
    NoPosition,
    PostNorm,
    PrefixLM,
    RMSNorm,
    Sinusoidal,
    StdLayerNorm,
)
from transformer_spec.presets import PRESETS
from verification.twins.hostile import hostile_config, tokens
from verification.twins.pair import Pair, tensors
from verification.twins.small_presets import TARGET as T
from verification.twins.small_presets import model_inputs, repeated_but_for_constants, small_presets
from verification.twins.weights import unit_scores

INVARIANT = [
    "decoder",
    "encoder, post-norm",
    "encoder-decoder, own embeddings",
    "encoder-decoder, shared, tied, post-norm",
]


HEADED = hostile_config(
    arch="encoder",
    num_layers=1,
    embed_norm=True,
    num_token_types=3,
    masked_lm=True,
    pooler=True,
    next_sentence=True,
    tie_embeddings=True,
    head_bias=True,
)

CONFIGS = {
    "decoder": hostile_config(),
    "decoder, tied, scaled": hostile_config(tie_embeddings=True, scale_embeddings=True),
    "decoder, head bias, RMSNorm, SwiGLU, no positions": hostile_config(
        head_bias=True,
        norm=RMSNorm(eps=1e-6),
        ffn=GatedFeedForward(activation="silu"),
        position=NoPosition(),
    ),
    "decoder of 11 layers": hostile_config(num_layers=11),
    "encoder": hostile_config(arch="encoder", position=Sinusoidal()),
    "encoder, post-norm": hostile_config(arch="encoder", residual=PostNorm()),
    "encoder with heads": HEADED,
    "encoder with a pooler alone": hostile_config(arch="encoder", pooler=True),
    "encoder-decoder, own embeddings": hostile_config(
        arch="encoder_decoder", num_decoder_layers=3, norm=StdLayerNorm(), position=Sinusoidal()
    ),
    "encoder-decoder, shared, tied, post-norm": hostile_config(
        arch="encoder_decoder",
        num_decoder_layers=1,
        share_embeddings=True,
        tie_embeddings=True,
        scale_embeddings=True,
        residual=PostNorm(),
    ),
    "encoder-decoder, shared, untied": hostile_config(
        arch="encoder_decoder", num_decoder_layers=2, share_embeddings=True, head_bias=True
    ),
    "encoder-decoder, tied to the decoder's own": hostile_config(
        arch="encoder_decoder", num_decoder_layers=2, tie_embeddings=True
    ),
} | {f"preset {name}": config for name, config in small_presets().items()}


def model_pair(config: ModelConfig, inputs: dict, **options) -> Pair:
    twins = flax_transformer.build_model(config), torch_reference.build_model(config)
    return Pair(*twins, inputs, **options)


def full_pair(config: ModelConfig) -> Pair:
    return model_pair(config, model_inputs(config), adjust=partial(unit_scores, config))


# A scaling of frequencies is compared by itself, in test_positions.
SLOW = {f"preset {name}" for name in repeated_but_for_constants()}
EVERY = [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CONFIGS]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("masks", [False, True], ids=["no masks", "masks"])
def test_twins_agree(float64, ledger, name, masks):
    config = CONFIGS[name]
    found = model_pair(config, model_inputs(config, masks)).differences()
    ledger(f"models.{name}" if name.startswith("preset") else f"models {config.arch}", found)


def fitting(configs: dict[str, ModelConfig]) -> list[str]:
    """Those whose parameters and gradients, in both twins and float64, take less than 10 GB."""
    return [name for name, config in configs.items() if 4 * 8 * parameters.count(config) < 1e10]


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.xdist_group("full size")  # one at a time: memory
@pytest.mark.parametrize("name", fitting({name: p.model for name, p in PRESETS.items()}))
def test_presets_agree_at_full_size(float64, ledger, name):
    """The largest holds 214M float64 parameters, and their gradients, in both twins."""
    config = PRESETS[name].model
    found = full_pair(config).differences()
    ledger(f"models.preset {name}, full size", found)


ONE_LAYER = {
    name: replace(preset.model, vocab_size=1000, num_layers=1)
    for name, preset in PRESETS.items()
    if name not in fitting({name: p.model for name, p in PRESETS.items()})
}


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.xdist_group("full size")
@pytest.mark.parametrize("name", fitting(ONE_LAYER))
def test_one_layer_of_the_larger_presets_agrees_at_full_width(float64, ledger, name):
    """Of those too large for a machine of 24 GB; one layer of some is too large as well."""
    found = full_pair(ONE_LAYER[name]).differences()
    ledger(f"models.preset {name}, one layer", found)


@pytest.mark.parametrize(
    "name",
    [
        "decoder",
        pytest.param("encoder", marks=pytest.mark.slow),
        pytest.param("encoder-decoder, own embeddings", marks=pytest.mark.slow),
    ],
)
def test_jit_is_eager(float64, compiled_as_users_do, name):
    shallow = {"num_layers": 1, "num_decoder_layers": CONFIGS[name].num_decoder_layers and 1}
    config = replace(CONFIGS[name], **shallow)
    pair = model_pair(config, model_inputs(config))
    found = differences(pair.run_flax(jax.jit), pair.run_flax(lambda function: function))
    assert max(d.error for d in found) <= 1e-12


def influence(
    config: ModelConfig, query: int, argument: str, **more: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """|d logits[:, query] / d embedded input| of each position of `argument`, in both twins.

    The derivative is taken by a shift added to the position table's rows, one per position.
    """
    inputs = model_inputs(config, masks=False) | more
    pair = model_pair(config, inputs)
    stack = "encoder" if argument == "source" else "decoder"

    def flax_logits(table):
        params = dict(pair.params)
        params[stack] = params[stack] | {"pos_embed": {"embedding": table}}
        out = pair.call_flax(params, **{k: jnp.asarray(v) for k, v in inputs.items()})
        return jnp.square(out[:, query]).sum()

    ours = compile_fast(jax.grad(flax_logits))(pair.params[stack]["pos_embed"]["embedding"])
    table = getattr(pair.torch, stack).pos_embed.weight
    out = pair.torch(**tensors(inputs))[:, query].square().sum()
    (theirs,) = torch.autograd.grad(out, table)
    length = inputs[argument].shape[1]
    return (
        np.abs(np.asarray(ours)).sum(-1)[:length],
        theirs.abs().sum(-1).numpy(force=True)[:length],
    )


@pytest.mark.parametrize("arch", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("query", range(T))
def test_no_gradient_flows_back_from_the_past_to_the_future(float64, arch, query):
    two = arch == "encoder_decoder"
    config = hostile_config(arch=arch, num_decoder_layers=2 if two else None)
    for gradient in influence(config, query, "target" if two else "tokens"):
        assert (gradient[: query + 1] > 0).all()
        assert (gradient[query + 1 :] == 0).all()


@pytest.mark.parametrize("query", [1, T - 1])
def test_a_window_reaches_one_token_less_than_its_width_back_per_layer(float64, query):
    """A window of 2 in each of 2 layers: a query, and the two before it."""
    config = hostile_config(mask=Causal(window=2), num_layers=2)
    for gradient in influence(config, query, "tokens"):
        reached = np.arange(T)
        seen = (reached <= query) & (reached >= query - 2)
        np.testing.assert_array_equal(gradient > 0, seen)


@pytest.mark.parametrize("query", [0, T - 1])
def test_every_query_sees_the_whole_prefix(float64, query):
    """Of 3 tokens, and of the rest what came before it."""
    config = hostile_config(mask=PrefixLM(), num_layers=1)
    prefix = np.broadcast_to(np.arange(T) < 3, (3, T)).copy()
    for gradient in influence(config, query, "tokens", prefix_mask=prefix):
        np.testing.assert_array_equal(gradient > 0, np.arange(T) <= max(query, 2))


def test_every_target_position_sees_the_whole_source(float64):
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2)
    for gradient in influence(config, 0, "source"):
        assert (gradient > 0).all()


def both_logits(pair: Pair, inputs: dict) -> list[np.ndarray]:
    ours = compile_fast(pair.call_flax)(pair.params, **inputs)
    return [np.asarray(ours), pair.call_torch(**tensors(inputs)).numpy(force=True)]


@pytest.mark.parametrize("name", INVARIANT)
def test_ids_at_padding_do_not_matter(float64, name):
    config = CONFIGS[name]
    inputs = model_inputs(config)
    pair = model_pair(config, inputs)
    changed = {
        k: np.where(inputs[f"{k.removesuffix('s')}_mask"], v, (v + 7) % 23)
        for k, v in inputs.items()
        if v.dtype != bool
    }
    mask = inputs.get("target_mask", inputs.get("token_mask"))
    for before, after in zip(
        both_logits(pair, inputs), both_logits(pair, inputs | changed), strict=True
    ):
        np.testing.assert_array_equal(before[mask], after[mask])
        assert not np.array_equal(before, after)


@pytest.mark.parametrize("name", INVARIANT)
@pytest.mark.parametrize("left", [0, 3], ids=["right padding", "padding on both sides"])
def test_a_padded_row_equals_the_row_alone(float64, name, left):
    config = CONFIGS[name]
    alone = {k: v[:1] for k, v in model_inputs(config, masks=False).items()}
    padded = {}
    for key, ids in alone.items():
        width = [(0, 0), (left, 2)]
        padded[key] = np.pad(ids, width, constant_values=9)
        padded[f"{key.removesuffix('s')}_mask"] = np.pad(np.ones(ids.shape, bool), width)
    pair = model_pair(config, alone)
    for short, long in zip(both_logits(pair, alone), both_logits(pair, padded), strict=True):
        kept = long[:, left : left + T]
        assert difference("logits", kept, short).error <= 1e-12


@pytest.mark.parametrize("name", ["decoder", "encoder", "encoder-decoder, own embeddings"])
def test_batch_independence(float64, name):
    config = CONFIGS[name]
    inputs = model_inputs(config)
    pair = model_pair(config, inputs)
    alone = {k: v[1:2] for k, v in inputs.items()}
    for whole, row in zip(both_logits(pair, inputs), both_logits(pair, alone), strict=True):
        assert difference("logits", whole[1:2], row).error <= 1e-12


def headed(pair: Pair, inputs: dict) -> list[dict[str, np.ndarray]]:
    """All outputs of an encoder with heads, in both twins."""
    ours = compile_fast(pair.call_flax)(pair.params, **inputs)
    theirs = pair.call_torch(**tensors(inputs))
    return [
        {name: np.asarray(ours._asdict()[name]) for name in ours._fields},
        {name: theirs._asdict()[name].numpy(force=True) for name in theirs._fields},
    ]


def test_the_heads_of_an_encoder_by_hand(float64):
    """Each from the hidden states, in NumPy: norm(f(W h + b)) E^T + c; tanh(W h_0 + b); W p + b."""
    inputs = model_inputs(HEADED)
    pair = model_pair(HEADED, inputs)
    named = {name: p.numpy(force=True) for name, p in pair.torch.named_parameters()}

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ named[f"{name}.weight"].T + named[f"{name}.bias"]

    for found in headed(pair, inputs):
        hidden = found["hidden"]
        wide = dense("lm_transform", hidden)
        activated = 0.5 * wide * (1 + np.vectorize(math.erf)(wide / np.sqrt(2)))
        centered = activated - activated.mean(-1, keepdims=True)
        normed = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + HEADED.norm.eps)
        normed = normed * named["lm_norm.weight"] + named["lm_norm.bias"]
        logits = normed @ named["encoder.embed.weight"].T + named["lm_head.bias"]
        np.testing.assert_allclose(found["logits"], logits, rtol=1e-11, atol=1e-12)
        pooled = np.tanh(dense("pooler", hidden[:, 0]))
        np.testing.assert_allclose(found["pooled"], pooled, rtol=1e-12)
        sentence = dense("sentence_head", pooled)
        np.testing.assert_allclose(found["next_sentence"], sentence, rtol=1e-12)


def test_an_encoder_sees_both_ways_and_no_padding(float64):
    """The last token reaches the pooler, which reads the first; ids at padding do not."""
    inputs = model_inputs(HEADED, masks=False)
    inputs["token_mask"] = np.arange(T) < np.array([[T], [T - 1], [T - 2]])
    pair = model_pair(HEADED, inputs)
    moved = inputs | {"tokens": np.where(np.arange(T) < T - 1, inputs["tokens"], 7)}
    for before, after in zip(headed(pair, inputs), headed(pair, moved), strict=True):
        for name in ("pooled", "next_sentence"):
            assert np.abs(before[name][0] - after[name][0]).max() > 1e-6
            np.testing.assert_array_equal(before[name][1:], after[name][1:])
        kept = inputs["token_mask"][1:]
        for name in ("hidden", "logits"):
            np.testing.assert_array_equal(before[name][1:][kept], after[name][1:][kept])


def test_segments_are_0_unless_given(float64):
    inputs = model_inputs(HEADED, masks=False)
    pair = model_pair(HEADED, inputs)
    zeros, ones = (np.full_like(inputs["tokens"], segment) for segment in (0, 1))
    for none, first, second in zip(
        headed(pair, inputs),
        headed(pair, inputs | {"token_types": zeros}),
        headed(pair, inputs | {"token_types": ones}),
        strict=True,
    ):
        np.testing.assert_array_equal(none["hidden"], first["hidden"])
        assert np.abs(none["hidden"] - second["hidden"]).max() > 1e-3


@pytest.mark.parametrize(
    ("count", "message"), [(0, "the config has num_token_types 0"), (3, r"ids 3\.\.3 .* \[0, 3\)")]
)
def test_unknown_segments_are_refused(float64, count, message):
    inputs = model_inputs(HEADED, masks=False)
    pair = model_pair(replace(HEADED, num_token_types=count), inputs)
    inputs["token_types"] = np.full_like(inputs["tokens"], 3)
    with pytest.raises(ValueError, match=f"token_types: .*{message}"):
        pair.call_flax(pair.params, **{name: jnp.asarray(x) for name, x in inputs.items()})
    with pytest.raises(ValueError, match=f"token_types: .*{message}"):
        pair.call_torch(**tensors(inputs))


def test_order_matters(float64):
    """Swapping two tokens changes what a later position sees, with either kind of positions."""
    for position in (Sinusoidal(), hostile_config().position):
        config = hostile_config(arch="encoder", position=position)
        ids = np.arange(T)[None]
        swapped = ids[:, [1, 0, *range(2, T)]]
        pair = model_pair(config, {"tokens": ids})
        for a, b in zip(
            both_logits(pair, {"tokens": ids}), both_logits(pair, {"tokens": swapped}), strict=True
        ):
            assert np.abs(a[:, -1] - b[:, -1]).max() > 1e-3


def test_positions_can_be_given(float64, ledger):
    """Two documents packed in one row, each from position 0, equal the two alone."""
    config = hostile_config()
    first, second = tokens(23, 1, 3), tokens(23, 1, 4)
    packed = {
        "tokens": np.concatenate([first, second], axis=1),
        "positions": np.array([[0, 1, 2, 0, 1, 2, 3]]),
        "mask": np.kron(np.eye(2, dtype=bool), np.ones((4, 4), bool))[1:, 1:][None, None],
    }
    pair = model_pair(config, packed)
    ledger("models decoder", pair.differences())
    for together, a, b in zip(
        both_logits(pair, packed),
        both_logits(pair, {"tokens": first}),
        both_logits(pair, {"tokens": second}),
        strict=True,
    ):
        expected = np.concatenate([a, b], axis=1)
        assert difference("logits", together, expected).error <= 1e-12


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_cross_both_ways(name):
    config = CONFIGS[name]
    pair = model_pair(config, model_inputs(config))
    back = weights.weights_to_flax(pair.torch, pair.params)
    assert jax.tree.structure(back) == jax.tree.structure(pair.params)
    jax.tree.map(np.testing.assert_array_equal, back, jax.device_get(pair.params))
