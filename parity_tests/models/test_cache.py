"""Key/value caches: cached = full, in both twins and twin to twin; full and rolling."""

from dataclasses import replace
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer
import flax_transformer.cache as flax_cache
import torch_reference
import torch_reference.cache as torch_cache
from parity.judge.errors import FLOAT64_TOLERANCE, difference
from parity_tests.models.test_models import both_logits
from transformer_spec.config import (
    ALiBi,
    Causal,
    NoPosition,
    PrefixLM,
    RelativeBias,
    RMSNorm,
    Rotary,
    Sinusoidal,
    TwoChannelRotary,
)
from verification.twins import chunked
from verification.twins.hostile import hostile_config, ragged_mask, tokens
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
    "prefix": hostile_config(mask=PrefixLM()),
    "two channels": hostile_config(position=TwoChannelRotary(), mask=PrefixLM(), head_dim=4),
}
TWINS = ["flax", "torch"]
# The rest of them in the slow tier.
DEFAULT = ("rotary, window",)
CHEAP = {name: replace(config, num_layers=1) for name, config in DECODERS.items()}
CUT = [
    *((name, (4, 1, 4)) for name in DEFAULT),
    *(pytest.param(n, (4, 1, 4), marks=pytest.mark.slow) for n in CHEAP if n not in DEFAULT),
    pytest.param("learned", (LENGTH,), marks=pytest.mark.slow),
    pytest.param("learned", ONE_BY_ONE, marks=pytest.mark.slow),
    pytest.param("relative, window", ONE_BY_ONE, marks=pytest.mark.slow),
]
TOKEN_MASK = np.arange(LENGTH) >= np.array([[0], [5], [2]])


def chunked_pair(config, inputs, parts) -> Pair:
    return Pair(chunked.flax_model(config, parts), chunked.torch_model(config, parts), inputs)


def whole_logits(pair: Pair, inputs) -> tuple[np.ndarray, np.ndarray]:
    """Of the same weights in one call."""
    flax = flax_transformer.build_model(pair.flax.config)
    reference = torch_reference.build_model(pair.flax.config).double()
    reference.load_state_dict(pair.torch.state_dict())
    ours = flax.apply({"params": pair.params}, **{k: jnp.asarray(v) for k, v in inputs.items()})
    return np.asarray(ours), reference(**tensors(inputs)).numpy(force=True)


def check(ledger, config, inputs, parts, real):
    pair = chunked_pair(config, inputs, parts)
    ledger("models.cached", pair.differences())
    for cached, whole in zip(both_logits(pair, inputs), whole_logits(pair, inputs), strict=True):
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
        whole = torch_reference.build_model(config).double()
        whole.load_state_dict(pair.torch.state_dict())
        real = inputs.get(f"{text.removesuffix('s')}_mask", np.ones(inputs[text].shape, bool))
        logits = [model(**tensors(inputs)).numpy(force=True) for model in (pair.torch, whole)]
        found = difference("logits", *(array[real] for array in logits))
        assert found.error <= FLOAT64_TOLERANCE, (found, config, parts)
        if (checked := checked + 1) == wanted:
            break


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, c in small_presets().items() if c.arch == "decoder"])
def test_every_decoder_preset_cached_is_full(float64, ledger, name):
    config = replace(small_presets()[name], max_seq_len=LENGTH)
    inputs = {"tokens": tokens(config.vocab_size, 3, LENGTH), "token_mask": TOKEN_MASK}
    check(ledger, config, inputs, (4, 1, 1, 3), TOKEN_MASK)


def test_a_rolling_cache_has_the_slots_that_one_call_sees():
    config = hostile_config(mask=Causal(window=3), norm=RMSNorm())
    for cache in (flax_cache, torch_cache):
        for chunk, slots in ((1, 3), (2, 4), (20, LENGTH)):
            made = cache.make_cache(config, 2, LENGTH, chunk)
            assert made.keys[0].shape == (2, slots, config.kv_heads, config.head_size)
        assert cache.make_cache(hostile_config(), 2, LENGTH).at.shape == (LENGTH,)


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
    whole, _ = whole_logits(pair, pair.inputs)
    assert difference("logits", np.concatenate(logits, 1), whole).error <= FLOAT64_TOLERANCE
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("cache", "array"), [(flax_cache, jnp.asarray), (torch_cache, torch.tensor)], ids=TWINS
)
class TestRefusals:
    def check(self, cache, array, config, made, read, more, rows=3):
        """`more` tokens for a cache that holds `read`."""
        held = cache.make_cache(config, *made)._replace(length=array(read))
        cache.check_room(config, held, array(np.zeros((rows, more), np.int32)))

    def test_a_full_cache_takes_no_more(self, cache, array):
        config = CHEAP["learned"]
        self.check(cache, array, config, (3, 5), 4, 1)
        with pytest.raises(ValueError, match=r"cache: no room for 2 tokens after 4; it holds .* 5"):
            self.check(cache, array, config, (3, 5), 4, 2)

    def test_a_part_too_large_for_a_rolling_cache(self, cache, array):
        config = CHEAP["rotary, window"]
        self.check(cache, array, config, (3, LENGTH, 2), 7, 2)
        with pytest.raises(ValueError, match="cache: no room for 3 tokens after 2"):
            self.check(cache, array, config, (3, LENGTH, 2), 2, 3)
        with pytest.raises(ValueError, match="cache: no room for 2 tokens after 12; .* of 13"):
            self.check(cache, array, config, (3, LENGTH, 2), 12, 2)

    def test_other_rows(self, cache, array):
        with pytest.raises(ValueError, match="cache: made for 2 rows, not usable .* of 3"):
            self.check(cache, array, CHEAP["learned"], (2, 5), 0, 1)

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
