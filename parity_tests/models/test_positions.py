"""Positions: tables, rotations, slopes and buckets; by hand, and exact after any cast."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import flax_transformer.positions as flax_positions
import torch_reference.positions as torch_positions
from transformer_spec import rotary
from transformer_spec.config import (
    ALiBi,
    Causal,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    PrefixLM,
    RelativeBias,
    Rotary,
    TwoChannelRotary,
    YarnScaling,
)
from transformer_spec.distances import alibi_slopes, distance_buckets
from verification.twins.attention_at_positions import (
    FlaxAttentionAtPositions,
    TorchAttentionAtPositions,
)
from verification.twins.hostile import hostile_config, normal, random_mask, tokens
from verification.twins.pair import Pair, function_differences, torch_device

B, T = 2, 5


@pytest.mark.parametrize(("length", "width"), [(11, 8), (5000, 128), (101, 7), (3, 1)])
def test_tables_are_bit_equal(length, width):
    ours = flax_positions.sinusoidal_table(length, width)
    theirs = torch_positions.sinusoidal_table(length, width)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.shape == (length, width)
    assert ours.dtype == np.float64


@pytest.mark.parametrize("positions", [flax_positions, torch_positions])
def test_table_is_the_formula_of_the_paper(positions):
    table = positions.sinusoidal_table(200, 8)
    for t in (0, 1, 3, 199):
        for i in range(4):
            angle = t / 10000 ** (2 * i / 8)
            assert table[t, 2 * i] == pytest.approx(np.sin(angle), abs=1e-15)
            assert table[t, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-15)


def test_modules_read_the_same_rows():
    positions = np.array([[0, 4, 2], [9, 1, 1]])
    ours = flax_positions.Sinusoidal(11, 7).apply({}, jnp.asarray(positions))
    theirs = torch_positions.Sinusoidal(11, 7)(torch.tensor(positions))
    np.testing.assert_array_equal(np.asarray(ours, np.float64), theirs.numpy())


@pytest.mark.parametrize("name", ["Sinusoidal", "RotaryTable"])
def test_tables_survive_casts_and_are_no_parameters(name):
    """Neither in torch's state dict nor among Linen's variables."""
    arguments = {"Sinusoidal": (11, 7), "RotaryTable": ((1.0, 0.1, 0.01), 13, 1.0)}[name]
    positions = np.arange(5)[None, :, None]
    module = getattr(torch_positions, name)(*arguments)
    exact = jax.tree.map(torch.clone, module(torch.tensor(positions)))
    module.to(torch.bfloat16).to(torch.float32).half().double()
    kept = module(torch.tensor(positions))
    torch.testing.assert_close(kept, exact, rtol=0, atol=0)
    assert not module.state_dict()
    flax_module = getattr(flax_positions, name)(*arguments)
    assert not flax_module.init(jax.random.key(0), jnp.asarray(positions))


SLOTS = {
    "rotary": (Rotary(), 6),
    "rotary, neighbours": (Rotary(interleaved=True), 6),
    "rotary, a part": (Rotary(fraction=0.4, theta=30.0), 10),
    "rotary, neighbours, a part": (Rotary(fraction=0.7, interleaved=True), 6),
    "rotary, linear": (Rotary(scaling=LinearScaling(factor=3.0)), 4),
    "rotary, llama 3": (Rotary(scaling=Llama3Scaling(original_max_seq_len=20)), 10),
    "rotary, YaRN": (Rotary(scaling=YarnScaling(factor=4.0, original_max_seq_len=8)), 10),
    "two channels": (TwoChannelRotary(), 8),
    "ALiBi": (ALiBi(), 5),
    "relative bias": (RelativeBias(num_buckets=8, max_distance=7), 5),
}


@pytest.mark.parametrize("name", SLOTS)
def test_twins_agree_on_attention_at_positions(float64, ledger, name):
    slot, head_dim = SLOTS[name]
    two = isinstance(slot, TwoChannelRotary)
    mask = PrefixLM() if two else Causal()
    config = hostile_config(position=slot, head_dim=head_dim, mask=mask)
    inputs = {
        "x": normal(B, T, 13),
        "positions": tokens(13, B, T, 1 + two),
        "mask": random_mask(B, 1, T, T),
    }
    found = Pair(
        FlaxAttentionAtPositions(config), TorchAttentionAtPositions(config), inputs
    ).differences()
    ledger(f"positions.{type(slot).__name__}", found)


def rotations(angles: np.ndarray) -> list:
    """(rotate, as_array, cos and sin) of both twins for angles [B, T, C, P]."""
    device = torch_device()
    return [
        (flax_positions.rotate, jnp.asarray, (jnp.cos(angles), jnp.sin(angles))),
        (
            torch_positions.rotate,
            lambda x: torch.tensor(x, device=device),
            tuple(torch.tensor(f(angles), device=device) for f in (np.cos, np.sin)),
        ),
    ]


def rotated(x: np.ndarray, angles: np.ndarray, interleaved: bool = False) -> list[np.ndarray]:
    found = [
        turn(array(x), table, interleaved) for turn, array, table in rotations(np.array(angles))
    ]
    return [np.asarray(found[0]), found[1].numpy(force=True)]


def test_a_pair_is_rotated_by_its_angle(float64):
    """(3, 1) by 90 degrees is (-1, 3); by 30 degrees (3 cos - sin, cos + 3 sin)."""
    x = np.array([[[[3.0, 1.0]], [[3.0, 1.0]]]])
    angles = [[[[np.pi / 2]], [[np.pi / 6]]]]
    cos = np.sqrt(3) / 2
    for interleaved in (False, True):
        for found in rotated(x, angles, interleaved):
            np.testing.assert_allclose(found[0, 0, 0], [-1, 3], atol=1e-15)
            np.testing.assert_allclose(found[0, 1, 0], [3 * cos - 0.5, cos + 1.5], rtol=1e-15)


def test_which_dimensions_are_a_pair(float64):
    """Of 7 dimensions 4 are rotated, in pairs of angle 90 and 180 degrees; the last 3 stay."""
    x = np.arange(1.0, 8.0).reshape(1, 1, 1, 7)
    angles = [[[[np.pi / 2, np.pi]]]]
    for found in rotated(x, angles):
        np.testing.assert_allclose(found.ravel(), [-3, -2, 1, -4, 5, 6, 7], atol=1e-14)
    for found in rotated(x, angles, interleaved=True):
        np.testing.assert_allclose(found.ravel(), [-2, 1, -3, -4, 5, 6, 7], atol=1e-14)


def test_each_of_two_channels_rotates_a_half(float64):
    """Of 4 dimensions, the first pair by the first channel's angle."""
    x = np.arange(1.0, 5.0).reshape(1, 1, 1, 4)
    for found in rotated(x, [[[[np.pi / 2], [np.pi]]]]):
        np.testing.assert_allclose(found.ravel(), [-2, 1, -3, -4], atol=1e-14)


def test_halves_and_neighbours_are_the_same_up_to_the_order_of_dimensions(float64):
    x, angles = normal(B, T, 3, 8), normal(B, T, 1, 4)
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # the neighbours that halves make
    for halves, neighbours in zip(
        rotated(x, angles), rotated(x[..., order], angles, interleaved=True), strict=True
    ):
        np.testing.assert_array_equal(halves[..., order], neighbours)


@pytest.mark.parametrize("slot", [Rotary(), Rotary(fraction=0.5, interleaved=True)], ids=str)
def test_products_of_rotated_vectors_depend_on_the_distance_alone(float64, slot):
    """<R_t q, R_s k> is that of <R_{t+n} q, R_{s+n} k>, for any n; without a rotation it is not."""
    config = hostile_config(position=slot, head_dim=8, max_seq_len=1000)
    positions = np.arange(5)[None, :, None]
    q, k = normal(1, 1, 1, 8), normal(1, 1, 1, 8, seed=4)

    def scores(table, turn, array, shift: int) -> np.ndarray:
        rotation = table(array(positions + shift))
        turned = (turn(array(np.repeat(x, 5, 1)), rotation, slot.interleaved) for x in (q, k))
        a, b = (np.asarray(x)[0, :, 0] for x in turned)
        return a @ b.T

    flax_table, torch_table = (
        flax_positions.make_rotary(config),
        torch_positions.make_rotary(config),
    )
    for table, turn, array in (
        (lambda p: flax_table.apply({}, p), flax_positions.rotate, jnp.asarray),
        (torch_table, torch_positions.rotate, torch.tensor),
    ):
        near, far = scores(table, turn, array, 0), scores(table, turn, array, 900)
        np.testing.assert_allclose(near, far, rtol=1e-11, atol=1e-12)
        for n in range(-4, 5):
            diagonal = np.diagonal(near, n)
            np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-12, atol=1e-13)
        assert np.ptp(near) > 0.1


@pytest.fixture
def float32_session():
    """A session of jax as most are: without 64 bits."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def test_far_positions_are_exact_in_float32(float32_session):
    """At 100,000 and beyond: a few units in the last place, where a float32 angle errs by 4e-3."""
    config = hostile_config(position=Rotary(), head_dim=64, max_seq_len=131_072)
    at = np.array([[100_000, 99_999, 131_071, 65_536, 255, 256]])[..., None]
    angles = at[..., None] * rotary.frequencies(64, 10000.0, NoScaling())
    exact = [np.cos(angles), np.sin(angles)]
    in_float32 = np.float32(at[..., None]) * np.float32(
        rotary.frequencies(64, 10000.0, NoScaling())
    )
    assert np.abs(np.cos(in_float32) - exact[0]).max() > 1e-3
    ours = flax_positions.make_rotary(config).apply({}, jnp.asarray(at))
    theirs = torch_positions.make_rotary(config)(torch.tensor(at))
    assert {str(part.dtype) for part in ours} == {"float32"}
    for right, flax_part, torch_part in zip(exact, ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(flax_part), right, atol=4 * 2**-24)
        np.testing.assert_allclose(torch_part.float().numpy(), right, atol=2**-24)


def test_frequencies_fall_by_the_same_factor():
    plain = rotary.frequencies(8, 10000.0, NoScaling())
    np.testing.assert_allclose(plain, [1, 0.1, 0.01, 0.001], rtol=1e-14)
    divided = rotary.frequencies(8, 10000.0, LinearScaling(factor=4.0))
    np.testing.assert_allclose(divided, [0.25, 0.025, 0.0025, 0.00025], rtol=1e-14)


def test_llama_3_keeps_short_wavelengths_and_divides_long_ones():
    """Wavelengths of 2 pi 10**i; over 6,283 tokens they turn 1000, 100, 10 and 1 times.

    Kept from 90 turns on, divided by 8 up to 1, and blended at 10: 9/89 of the way.
    """
    scaling = Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=90.0, original_max_seq_len=6283
    )
    found = rotary.frequencies(8, 10000.0, scaling)
    blended = 0.01 * (9 / 89 + 80 / 89 / 8)
    np.testing.assert_allclose(found[:2], [1, 0.1], rtol=1e-14)
    np.testing.assert_allclose(found[2:], [blended, 0.001 / 8], rtol=1e-3)


def test_llama_3_is_the_published_rule():
    """Written by wavelengths, as in LLaMA's own code, for the 64 pairs of LLaMA 3.1."""

    def rule(f: float) -> float:
        wavelength = 2 * np.pi / f
        if wavelength < 8192 / 4:
            return f
        if wavelength > 8192 / 1:
            return f / 8
        smooth = (8192 / wavelength - 1) / (4 - 1)
        return (1 - smooth) * f / 8 + smooth * f

    plain = rotary.frequencies(128, 500000.0, NoScaling())
    found = rotary.frequencies(128, 500000.0, Llama3Scaling())
    np.testing.assert_allclose(found, [rule(f) for f in plain], rtol=1e-13)
    assert (found == plain).sum() > 20
    assert (found == plain / 8).sum() > 20


def test_yarn_of_llama_2_by_16():
    """Pairs 0..20 turn 32 times or more in 4,096 tokens, from 46 on less than once; by hand."""
    scaling = YarnScaling(factor=16.0, original_max_seq_len=4096)
    plain = rotary.frequencies(128, 10000.0, NoScaling())
    ratio = rotary.frequencies(128, 10000.0, scaling) / plain
    np.testing.assert_allclose(ratio[:21], 1, rtol=1e-14)
    np.testing.assert_allclose(ratio[46:], 1 / 16, rtol=1e-14)
    ramp = np.arange(1, 26) / 26
    np.testing.assert_allclose(ratio[21:46], 1 - ramp * 15 / 16, rtol=1e-13)
    assert rotary.amplitude(scaling) == pytest.approx(1.2772588722239782, rel=1e-15)
    assert (
        rotary.amplitude(YarnScaling(factor=2.0, original_max_seq_len=8, attention_factor=3.0)) == 3
    )
    assert rotary.amplitude(LinearScaling(factor=4.0)) == 1


# Press et al. 2022: 2**-1, 2**-2, ... for 8 heads; for other numbers, those of the next lower
# power of two, and between them every other one of those of twice as many heads.
SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    8: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    12: [
        *(2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8),
        *(2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5),
    ],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_slopes_of_the_paper(heads):
    np.testing.assert_allclose(alibi_slopes(heads), SLOPES[heads], rtol=1e-15)


def test_alibi_is_a_slope_times_the_distance(float64):
    positions = np.array([[0, 1, 5]])
    distance = np.array([[0, 1, 5], [1, 0, 4], [5, 4, 0]])
    expected = -np.array(SLOPES[6])[:, None, None] * distance
    ours = flax_positions.ALiBi(6).apply({}, *[jnp.asarray(positions)] * 2)
    theirs = torch_positions.ALiBi(6)(*[torch.tensor(positions)] * 2)
    np.testing.assert_array_equal(np.asarray(ours), expected[None])
    np.testing.assert_array_equal(theirs.numpy(), expected[None])


# T5's 32 buckets up to 128: a bucket each for distances below 16, then borders 16 * 8**(j / 16);
# of two directions 16 each, below 8, then 8 * 16**(j / 8). By hand, rounded up.
BORDERS_32 = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
BORDERS_16 = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]


@pytest.mark.parametrize("borders", [BORDERS_32, BORDERS_16], ids=["32", "16"])
def test_buckets_begin_where_t5s_do(borders):
    found = distance_buckets(len(borders), 128)
    assert [int(np.flatnonzero(found == bucket)[0]) for bucket in range(len(borders))] == borders
    assert (np.diff(found) >= 0).all()
    assert len(found) == 129


@pytest.mark.parametrize("bidirectional", [True, False], ids=["encoder", "decoder"])
def test_buckets_of_200_tokens_either_way(bidirectional):
    """The logarithm of Raffel et al. 2020 in float64, nudged over borders that it hits exactly."""
    count = 16 if bidirectional else 32
    exact = count // 2

    def formula(ahead: int) -> int:
        side = count if bidirectional and ahead > 0 else 0
        distance = abs(ahead) if bidirectional else max(-ahead, 0)
        if distance < exact:
            return side + distance
        share = np.log(distance / exact) / np.log(128 / exact) * (count - exact)
        return side + min(exact + int(share + 1e-9), count - 1)

    ahead = np.arange(-200, 201)
    slot = RelativeBias(num_buckets=32, max_distance=128)
    ours = flax_positions.RelativeBias(slot, 6, bidirectional).buckets(jnp.asarray(ahead))
    theirs = torch_positions.RelativeBias(slot, 6, bidirectional).buckets(torch.tensor(ahead))
    expected = [formula(int(a)) for a in ahead]
    np.testing.assert_array_equal(np.asarray(ours), expected)
    np.testing.assert_array_equal(theirs.numpy(), expected)
    # Of the half for later keys, the bucket of distance 0 is never read.
    assert set(range(32)) - set(expected) == ({16} if bidirectional else set())


@pytest.mark.parametrize("bidirectional", [True, False], ids=["encoder", "decoder"])
def test_a_relative_bias_reads_the_row_of_its_bucket(float64, ledger, bidirectional):
    """By hand: of two directions, distances 2 and 3 share a bucket; of one, later keys are at 0."""
    slot = RelativeBias(num_buckets=8, max_distance=5)
    positions = np.array([[0, 1, 3]])
    twins = (m.RelativeBias(slot, 6, bidirectional) for m in (flax_positions, torch_positions))
    pair = Pair(*twins, {"positions": positions, "key_positions": positions})
    ledger("positions.RelativeBias", pair.differences())
    both, past = [[0, 5, 6], [1, 0, 6], [2, 2, 0]], [[0, 0, 0], [1, 0, 0], [3, 2, 0]]
    rows = np.asarray(pair.params["embedding"])[np.array(both if bidirectional else past)]
    np.testing.assert_array_equal(pair.run_flax()["output.0"][0], np.moveaxis(rows, -1, 0))


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
def test_rotations_agree_with_their_gradients(float64, ledger, interleaved):
    angles = normal(B, T, 2, 2)
    (flax_turn, _, flax_table), (torch_turn, _, torch_table) = rotations(angles)
    found = function_differences(
        lambda x: flax_turn(x, flax_table, interleaved),
        lambda x: torch_turn(x, torch_table, interleaved),
        {"x": normal(B, T, 3, 9)},
    )
    ledger("positions.rotate", found)
