"""Key/value caches: cached = full, in both twins and twin to twin; full and rolling."""

from dataclasses import replace
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer
import flax_transformer.attention as flax_attention
import flax_transformer.cache as flax_cache
import torch_reference
import torch_reference.attention as torch_attention
import torch_reference.cache as torch_cache
from parity.judge.errors import FLOAT64_TOLERANCE, difference
from parity.observe.flax_side import compile_fast
from parity_tests.models.test_models import both_logits, model_pair
from transformer_spec.config import (
    ALiBi,
    AlternatingWindow,
    Causal,
    NoPosition,
    PrefixLM,
    RelativeBias,
    Rotary,
    Sinusoidal,
    TwoChannelRotary,
)
from verification.twins import chunked
from verification.twins.hostile import hostile_config, normal, ragged_mask, tokens
from verification.twins.pair import Pair, tensors
from verification.twins.random_architectures import draw_architecture
from verification.twins.small_presets import small_presets

LENGTH = 9
ONE_BY_ONE = (1,) * LENGTH
DECODERS = {
    "learned": hostile_config(),
    "sinusoidal": hostile_config(position=Sinusoidal()),
    "none": hostile_config(position=NoPosition()),
    "rotary": hostile_config(position=Rotary(), head_dim=6, num_kv_heads=2),
    "rotary, window": hostile_config(position=Rotary(), mask=Causal(window=3), head_dim=6),
    "ALiBi, window": hostile_config(position=ALiBi(), mask=Causal(window=3)),
    "relative": hostile_config(position=RelativeBias(num_buckets=8, max_distance=7)),
    "relative, window": hostile_config(
        position=RelativeBias(num_buckets=8, max_distance=7), mask=Causal(window=4)
    ),
    "rotary, alternating": hostile_config(
        position=Rotary(), mask=AlternatingWindow(window=3), head_dim=6, num_layers=3
    ),
    "relative, alternating": hostile_config(
        position=RelativeBias(num_buckets=8, max_distance=7), mask=AlternatingWindow(window=3)
    ),
    "prefix": hostile_config(mask=PrefixLM()),
    "two channels": hostile_config(position=TwoChannelRotary(), mask=PrefixLM(), head_dim=4),
}
TWINS = ["flax", "torch"]
# The rest of them in the slow tier.
DEFAULT = ("relative, alternating",)
CHEAP = {
    name: config if isinstance(config.mask, AlternatingWindow) else replace(config, num_layers=1)
    for name, config in DECODERS.items()
}
# Every part is compiled anew.
LONG = [pytest.mark.slow, pytest.mark.long]
CUT = [
    *((name, (4, 1, 4)) for name in DEFAULT),
    *(pytest.param(n, (4, 1, 4), marks=pytest.mark.slow) for n in CHEAP if n not in DEFAULT),
    pytest.param("learned", (LENGTH,), marks=pytest.mark.slow),
    pytest.param("learned", ONE_BY_ONE, marks=LONG),
    pytest.param("relative, window", ONE_BY_ONE, marks=LONG),
]
TOKEN_MASK = np.arange(LENGTH) >= np.array([[0], [5], [2]])
# Padding on the left, on the right, and on both sides.
RAGGED = TOKEN_MASK & (np.arange(LENGTH) < np.array([[7], [9], [8]]))


def chunked_pair(config, inputs, parts) -> Pair:
    return Pair(chunked.flax_model(config, parts), chunked.torch_model(config, parts), inputs)


def whole_flax(pair: Pair, inputs) -> np.ndarray:
    """Of the same weights in one call."""
    model = flax_transformer.build_model(pair.flax.config)
    arrays = {name: jnp.asarray(value) for name, value in inputs.items()}
    return np.asarray(compile_fast(model.apply)({"params": pair.params}, **arrays))


def whole_torch(pair: Pair, inputs) -> np.ndarray:
    model = torch_reference.build_model(pair.flax.config).double()
    model.load_state_dict(pair.torch.state_dict())
    return model(**tensors(inputs)).numpy(force=True)


def check(ledger, config, inputs, parts, real):
    pair = chunked_pair(config, inputs, parts)
    ledger("models.cached", pair.differences())
    wholes = whole_flax(pair, inputs), whole_torch(pair, inputs)
    for cached, whole in zip(both_logits(pair, inputs), wholes, strict=True):
        found = difference("logits", cached[real], whole[real])
        assert found.error <= FLOAT64_TOLERANCE, found


@pytest.mark.parametrize(("name", "parts"), CUT)
def test_cached_is_full(float64, ledger, name, parts):
    """Rows with padding on the left; gradients of both twins through the cache."""
    inputs = {"tokens": tokens(23, 3, LENGTH), "token_mask": TOKEN_MASK}
    if isinstance(CHEAP[name].mask, PrefixLM):
        # A prefix is not cut: it ends within the first part.
        ends = np.array([[parts[0]], [0], [min(3, parts[0])]])
        inputs["prefix_mask"] = np.arange(LENGTH) < ends
    check(ledger, CHEAP[name], inputs, parts, TOKEN_MASK)


@pytest.mark.parametrize(
    "position",
    [
        RelativeBias(num_buckets=8, max_distance=7),
        pytest.param(Sinusoidal(), marks=pytest.mark.slow),
    ],
)
def test_cached_is_full_beside_an_encoder(float64, ledger, position):
    config = hostile_config(
        arch="encoder_decoder", num_layers=1, num_decoder_layers=1, position=position
    )
    mask = ragged_mask(3, 7)
    inputs = {"source": tokens(23, 3, 7), "target": tokens(23, 3, 7)[::-1].copy()}
    inputs |= {"source_mask": mask, "target_mask": mask}
    check(ledger, config, inputs, (3, 1, 3), mask)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("twin", ["torch", pytest.param("flax", marks=LONG)])
def test_parts_of_every_size_give_the_whole(float64, twin, name):
    config = DECODERS[name]
    inputs = {"tokens": tokens(23, 3, LENGTH), "token_mask": RAGGED}
    pair = model_pair(config, inputs)
    for size in range(1, LENGTH + 1):
        parts = (*(size,) * (LENGTH // size), *filter(None, [LENGTH % size]))
        if isinstance(config.mask, PrefixLM):
            inputs["prefix_mask"] = np.arange(LENGTH) < np.array([[min(size, 3)], [0], [1]])
        if twin == "torch":
            model = chunked.torch_model(config, parts).double()
            model.load_state_dict(pair.torch.state_dict())
            logits = model(**tensors(inputs)).numpy(force=True), whole_torch(pair, inputs)
        else:
            model = chunked.flax_model(config, parts)
            cached = compile_fast(model.apply)({"params": pair.params}, **inputs)
            logits = np.asarray(cached), whole_flax(pair, inputs)
        found = difference("logits", *(array[RAGGED] for array in logits))
        assert found.error <= FLOAT64_TOLERANCE, (size, found)


def cut(rng: np.random.Generator, length: int) -> tuple[int, ...]:
    """Random parts of a text."""
    ends = np.flatnonzero(rng.random(length - 1) < 0.5) + 1
    return tuple(np.diff([0, *ends, length]).tolist())


def test_random_decoders_cached_are_full(float64, request):
    """As many as `--architectures` asks for, of every slot, in the torch twin."""
    wanted, checked = request.config.getoption("--architectures"), 0
    for seed in count(request.config.getoption("--architectures-seed") * 10**6):
        config, inputs = (drawn := draw_architecture(seed)).config, dict(drawn.inputs)
        if config.arch == "encoder":
            continue
        text = "tokens" if config.arch == "decoder" else "target"
        parts = cut(np.random.default_rng(seed), inputs[text].shape[1])
        inputs.pop("mask", None), inputs.pop("positions", None)
        if "prefix_mask" in inputs:
            inputs["prefix_mask"][:, parts[0] :] = False
        pair = chunked_pair(config, inputs, parts)
        real = inputs.get(f"{text.removesuffix('s')}_mask", np.ones(inputs[text].shape, bool))
        cached = pair.call_torch(**tensors(inputs)).numpy(force=True)
        logits = cached, whole_torch(pair, inputs)
        found = difference("logits", *(array[real] for array in logits))
        assert found.error <= FLOAT64_TOLERANCE, (found, config, parts)
        if (checked := checked + 1) == wanted:
            break


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [n for n, c in small_presets().items() if c.arch == "decoder"])
def test_every_decoder_preset_cached_is_full(float64, ledger, name):
    config = replace(small_presets()[name], max_seq_len=LENGTH)
    inputs = {"tokens": tokens(config.vocab_size, 3, LENGTH), "token_mask": TOKEN_MASK}
    check(ledger, config, inputs, (4, 1, 1, 3), TOKEN_MASK)


@pytest.mark.parametrize("cache", [flax_cache, torch_cache], ids=TWINS)
@pytest.mark.parametrize(
    ("mask", "chunk", "slots"),
    [
        (Causal(), 1, (LENGTH, LENGTH, LENGTH)),
        (Causal(window=3), 1, (3, 3, 3)),
        (Causal(window=3), 2, (4, 4, 4)),
        (Causal(window=3), 20, (LENGTH, LENGTH, LENGTH)),
        (AlternatingWindow(window=3), 2, (4, LENGTH, 4)),
        (AlternatingWindow(window=3, full_every=3), 1, (3, 3, LENGTH)),
    ],
    ids=str,
)
def test_each_layer_has_the_slots_that_one_call_sees(cache, mask, chunk, slots):
    config = hostile_config(mask=mask, num_layers=3)
    made = cache.make_cache(config, 2, LENGTH, chunk)
    assert tuple(layer.num_slots for layer in made.layers) == slots


@pytest.mark.parametrize("cache", [flax_cache, torch_cache], ids=TWINS)
def test_a_rolling_cache_keeps_the_newest_tokens(cache):
    layer = cache.make_cache(hostile_config(mask=Causal(window=3)), 2, LENGTH, 2).layers[0]
    assert layer.token_indices(2).tolist() == [0, 1, 2, 3]  # two slots wait for their first tokens
    read = layer._replace(length=layer.length + 5)
    assert read.token_indices(2).tolist() == [4, 5, 6, 3]


def test_masks_and_biases_are_made_once_for_all_layers_of_a_kind(float64):
    """Two kinds of layers, full and rolling, in a model of four."""
    config = hostile_config(position=ALiBi(), mask=AlternatingWindow(window=3), num_layers=4)
    model = torch_reference.build_model(config).double()
    ids, made = torch.tensor(tokens(23, 3, LENGTH)), []
    model.decoder.rel_bias.register_forward_hook(lambda *call: made.append(call[-1].shape[-1]))
    cache = torch_cache.make_cache(config, 3, LENGTH, 2, torch.float64)
    model.extend(ids[:, :2], cache)
    assert made == [4, LENGTH]


def rounded(array: np.ndarray) -> np.ndarray:
    return np.asarray(jnp.asarray(array, jnp.bfloat16), array.dtype)


def test_a_narrow_cache_rounds_keys_and_values_and_nothing_else(float64):
    """Attention to the rounded keys and values, written out in NumPy; the same in both twins."""
    config = hostile_config(num_heads=3, num_kv_heads=3)
    pair = Pair(flax_attention.Attention(config), torch_attention.Attention(config), {"x": X})
    q, k, v = projected(pair)
    k, v = rounded(k), rounded(v)
    scores = np.einsum("btnh,bsnh->bnts", q, k) * config.score_scale
    exponents = np.exp(np.where(np.tri(5, dtype=bool), scores, -np.inf))
    context = np.einsum("bnts,bsnh->btnh", exponents / exponents.sum(-1, keepdims=True), v)
    expected = pair.torch.o_proj(torch.tensor(context.reshape(2, 5, -1))).numpy(force=True)
    mask = np.tri(5, dtype=bool)[None, None]
    ours, _, kept = pair.call_flax(
        pair.params,
        x=jnp.asarray(X),
        mask=jnp.asarray(mask),
        cache=flax_cache.make_cache(config, 2, 5, dtype=jnp.bfloat16).layers[0],
    )
    theirs, _, held = pair.call_torch(
        x=torch.tensor(X),
        mask=torch.tensor(mask),
        cache=torch_cache.make_cache(config, 2, 5, dtype=torch.bfloat16).layers[0],
    )
    assert (kept.keys.dtype, held.keys.dtype) == (jnp.bfloat16, torch.bfloat16)
    for cached in (np.asarray(ours), theirs.numpy(force=True)):
        assert difference("output", cached, expected).error <= FLOAT64_TOLERANCE
        assert cached.dtype == np.float64


X = normal(2, 5, 13)


def projected(pair: Pair) -> list[np.ndarray]:
    """Queries, keys and values of X."""
    layers = pair.torch.q_proj, pair.torch.k_proj, pair.torch.v_proj
    made = [layer(torch.tensor(X)).numpy(force=True) for layer in layers]
    return [array.reshape(2, 5, -1, pair.torch.config.head_size) for array in made]


def test_compiled_once_for_every_step(float64):
    """Under jit the step's shapes do not change, and all steps compile one program."""
    config = CHEAP["rotary, window"]
    pair = chunked_pair(config, {"tokens": tokens(23, 3, LENGTH)}, ONE_BY_ONE)
    model = flax_transformer.build_model(config)
    traced = []

    @jax.jit
    def step(ids, cache):
        traced.append(1)
        return model.apply({"params": pair.params}, ids, cache, method="extend")

    ids, cache = (
        jnp.asarray(pair.inputs["tokens"]),
        flax_cache.make_cache(config, 3, LENGTH, dtype=jnp.float64),
    )
    logits = []
    for t in range(LENGTH):
        out, cache = step(ids[:, t : t + 1], cache)
        logits.append(out)
    whole = whole_flax(pair, pair.inputs)
    assert difference("logits", np.concatenate(logits, 1), whole).error <= FLOAT64_TOLERANCE
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("cache", "array"), [(flax_cache, jnp.asarray), (torch_cache, torch.tensor)], ids=TWINS
)
class TestRefusals:
    def check(self, cache, array, config, made, read, more, rows=3):
        """`more` tokens for a cache that holds `read`."""
        held = cache.make_cache(config, *made)
        layers = tuple(layer._replace(length=array(read)) for layer in held.layers)
        ids = array(np.zeros((rows, more), np.int32))
        cache.check_room(config, held._replace(layers=layers), ids)

    def test_a_full_cache_takes_no_more(self, cache, array):
        config = CHEAP["learned"]
        self.check(cache, array, config, (3, 5), 4, 1)
        with pytest.raises(ValueError, match=r"cache: no room for 2 tokens after 4; it holds .* 5"):
            self.check(cache, array, config, (3, 5), 4, 2)

    @pytest.mark.parametrize("name", ["rotary, window", "rotary, alternating"])
    def test_a_part_too_large_for_a_rolling_cache(self, cache, array, name):
        config = CHEAP[name]
        self.check(cache, array, config, (3, LENGTH, 2), 7, 2)
        with pytest.raises(ValueError, match="cache: 3 tokens in one call .* at most 2"):
            self.check(cache, array, config, (3, LENGTH, 2), 2, 3)
        with pytest.raises(ValueError, match="cache: no room for 2 tokens after 8; .* of 9"):
            self.check(cache, array, config, (3, LENGTH, 2), 8, 2)

    def test_other_rows(self, cache, array):
        with pytest.raises(ValueError, match="cache: made for 2 rows, not usable .* of 3"):
            self.check(cache, array, CHEAP["learned"], (2, 5), 0, 1)

    def test_a_prefix_that_the_cache_has_no_place_for(self, cache, array):
        made = cache.make_cache(CHEAP["learned"], 3, 5)
        token_mask = array(np.ones((3, 2), bool))
        with pytest.raises(ValueError, match="prefix_mask: not usable with a cache"):
            made.with_masks(token_mask, token_mask)

    def test_what_a_cache_keeps_itself(self, cache, array):
        for name in ("mask", "positions"):
            given = {"mask": None, "positions": None, name: array(0)}
            with pytest.raises(ValueError, match=f"{name}: not usable with a cache"):
                cache.refuse_beside_cache(**given)

    @pytest.mark.parametrize(
        ("sizes", "error"),
        [
            ((0, 5), "batch_size: 0 is not usable; it must be at least 1"),
            ((2, 0), "length: 0 is not usable"),
            ((2, 14), "length: 14 is not usable; max_seq_len is 13"),
            ((2, 5, 0), "chunk: 0 is not usable"),
        ],
    )
    def test_sizes(self, cache, array, sizes, error):
        with pytest.raises(ValueError, match=error):
            cache.make_cache(CHEAP["learned"], *sizes)
