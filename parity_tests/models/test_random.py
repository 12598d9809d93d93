"""Threefry's words in NumPy, jax and torch: known answers, and jax.random's keys and bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from torch_reference import random
from transformer_spec import streams

SEEDS = (0, 7, 2**31 + 5, 2**32 - 1)
# Longer than a block, so that a stream is put together from several.
SHAPE = (101, 307)


def words(key) -> np.ndarray:
    """The words of a key of any framework."""
    if isinstance(key, torch.Tensor):
        return key.numpy().view(np.uint32)
    return key if isinstance(key, np.ndarray) else np.asarray(jax.random.key_data(key))


def in_numpy(key: list[int], x: list[int], y: list[int]) -> np.ndarray:
    return np.stack(streams.threefry(*(np.array(words, np.uint32) for words in (key, x, y))))


def in_jax(key: list[int], x: list[int], y: list[int]) -> np.ndarray:
    arrays = (jnp.array(words, jnp.uint32) for words in (key, x, y))
    return np.stack(jax.jit(streams.threefry)(*arrays))


def in_torch(key: list[int], x: list[int], y: list[int]) -> np.ndarray:
    arrays = (torch.tensor(words).to(torch.int32) for words in (key, x, y))
    return words(torch.stack(random.threefry(*arrays)))


@pytest.mark.parametrize("threefry", [in_numpy, in_jax, in_torch])
def test_known_answers(threefry):
    """The authors' own: `threefry2x32 20` of tests/kat_vectors in Random123."""
    ones = 0xFFFFFFFF
    for key, counter, expected in (
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ones, ones), (ones, ones), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ):
        found = threefry(list(key), [counter[0]], [counter[1]])
        np.testing.assert_array_equal(found, np.array([expected], np.uint32).T)


@pytest.mark.parametrize("threefry", [in_numpy, in_jax])
def test_a_thousand_counters_in_every_framework(threefry):
    x, y = np.random.default_rng(0).integers(2**32, size=(2, 1000)).tolist()
    np.testing.assert_array_equal(threefry([1, 2**32 - 1], x, y), in_torch([1, 2**32 - 1], x, y))


def test_counters_are_left_as_they_were():
    x, y = np.zeros(3, np.uint32), np.arange(3, dtype=np.uint32)
    streams.threefry(streams.seed_key(7), x, y)
    np.testing.assert_array_equal([x, y], [[0, 0, 0], [0, 1, 2]])


def test_keys_literally():
    """Dropout relies on what `jax.random` makes of a key; this fails where a release changes it."""
    folded = words(jax.random.fold_in(jax.random.key(5), 9))
    np.testing.assert_array_equal(folded, [2453675757, 4238417937])
    np.testing.assert_array_equal(words(streams.fold_in(streams.seed_key(5), 9)), folded)
    np.testing.assert_array_equal(words(random.fold_in(random.key(5), 9)), folded)


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_and_what_is_made_of_them(seed):
    ours, host, theirs = random.key(seed), streams.seed_key(seed), jax.random.key(seed)
    np.testing.assert_array_equal(words(ours), words(theirs))
    np.testing.assert_array_equal(words(host), words(theirs))
    expected = np.stack([words(key) for key in jax.random.split(theirs)])
    np.testing.assert_array_equal(streams.split(host), expected)
    data = [0, 1, 123_456, 2**31, 2**32 - 1]
    folded = np.stack([words(jax.random.fold_in(theirs, np.uint32(d))) for d in data])
    np.testing.assert_array_equal(words(random.fold_in(ours, torch.tensor(data))), folded)
    np.testing.assert_array_equal([streams.fold_in(host, number) for number in data], folded)


@pytest.mark.parametrize("seed", SEEDS)
def test_bits(seed):
    ours = random.bits(random.key(seed), SHAPE)
    expected = jax.random.bits(jax.random.key(seed), SHAPE, np.uint32)
    np.testing.assert_array_equal(words(ours), np.asarray(expected))


def test_uniform_numbers_are_the_52_upper_bits_of_both_words_and_a_half(float64):
    """`jax.random.uniform` in float64 is the same bits without the half."""
    found = streams.uniform(streams.seed_key(11), 0, 1000)
    theirs = jax.random.uniform(jax.random.key(11), (1000,), np.float64)
    np.testing.assert_array_equal(found, np.asarray(theirs) + 2.0**-53)
    np.testing.assert_array_equal(streams.uniform(streams.seed_key(11), 300, 500), found[300:500])


def test_uniform_numbers_never_reach_their_ends(monkeypatch):
    """The least and the largest word."""
    for word, expected in ((0, 2.0**-53), (2**32 - 1, 1 - 2.0**-53)):
        pair = (np.array([word], np.uint32),) * 2
        monkeypatch.setattr(streams, "threefry", lambda *_, pair=pair: pair)
        assert streams.uniform(streams.seed_key(0), 0, 1) == expected


def test_uniform_numbers_beyond_the_first_four_billion():
    """A counter above 2**32 is split between the words."""
    start = 2**32 + 5
    x, y = in_torch(words(random.key(3)).tolist(), [1], [5])[:, 0].tolist()
    expected = ((x << 32 | y) >> 12) / 2**52 + 2.0**-53
    assert streams.uniform(streams.seed_key(3), start, start + 1) == expected
