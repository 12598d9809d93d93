"""Rows read by other positions, rotations by other angles, masks that add up, layers left out."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional as F

from parity_tests.toolkit.explaining import drawn, explained

B, T, N, H, D = 2, 7, 3, 6, 18
PADDED = np.array([[0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]])
IDS = np.random.default_rng(3).integers(0, 11, (B, T))
LOW = -1e4


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=shape)


def test_positions_by_column_in_the_place_of_counted_ones():
    def right(p, inputs):
        places = (inputs["mask"].cumsum(-1) - 1).clamp(min=0)
        return p["tokens"][inputs["ids"]] + p["positions"][places]

    def wrong(p, inputs):
        return p["tokens"][inputs["ids"]] + p["positions"][jnp.arange(T)]

    arrays = drawn(tokens=(11, 5), positions=(T, 5))
    edit = explained(right, wrong, arrays, {"ids": IDS, "mask": PADDED})
    assert edit is not None
    assert edit.base.endswith("counting where mask is True, from 0")
    assert edit.target.endswith("by column: 0, 1, 2, ...")


def test_buckets_are_told_by_the_rule_that_gives_them():
    ahead = np.arange(24) - np.arange(24)[:, None]

    def buckets(reach):
        far = 4 + (np.log(np.maximum(-ahead, 1) / 4) / np.log(reach / 4) * 4 + 1e-9).astype(int)
        return np.where(-ahead < 4, np.maximum(-ahead, 0), np.minimum(far, 7))

    def right(p, inputs):
        distance = torch.arange(24) - torch.arange(24)[:, None]
        far = distance.neg().clamp(min=1) / 4
        far = 4 + (far.log() / np.log(16 / 4) * 4 + 1e-9).to(torch.int64)
        chosen = torch.where(-distance < 4, distance.neg().clamp(min=0), far.clamp(max=7))
        return (inputs["x"] + p["bias"][chosen].permute(2, 0, 1)).softmax(-1)

    def wrong(p, inputs):
        return jax.nn.softmax(inputs["x"] + p["bias"][buckets(32)].transpose(2, 0, 1), -1)

    edit = explained(right, wrong, drawn(bias=(8, N)), {"x": normal(N, 24, 24)})
    assert edit is not None
    assert "max_distance" in edit.base
    assert "max_distance" in edit.target
    assert edit.base != edit.target


def angles(start: int) -> np.ndarray:
    return np.outer(np.arange(start, start + T), 1e4 ** (-np.arange(0, H, 2) / H))


def turned(x, cos, sin, cat):
    half = H // 2
    a, b = x[..., :half], x[..., half:]
    return cat([a * cos - b * sin, b * cos + a * sin], -1)


def test_a_rotation_by_earlier_positions():
    def right(p, inputs):
        q = (inputs["x"] @ p["q"]).reshape(B, T, N, H)
        a = torch.tensor(angles(3))[:, None]
        return turned(q, a.cos(), a.sin(), torch.cat) * 2

    def wrong(p, inputs):
        q = (inputs["x"] @ p["q"]).reshape(B, T, N, H)
        a = angles(0)[:, None]
        return turned(q, np.cos(a), np.sin(a), jnp.concatenate) * 2

    edit = explained(right, wrong, drawn(q=(5, D)), {"x": normal(B, T, 5)})
    assert edit is not None
    assert (edit.base, edit.target) == ("rotary positions from 3 on", "rotary positions from 0 on")


def attention(mask):
    """Scores with a mask applied, in torch and in JAX alike."""

    def torch_call(p, inputs):
        q, k, v = (inputs["x"] @ p[n] for n in "qkv")
        return mask(q @ k.mT, torch).softmax(-1) @ v

    def jax_call(p, inputs):
        q, k, v = (inputs["x"] @ p[n] for n in "qkv")
        return jax.nn.softmax(mask(q @ k.swapaxes(-1, -2), jnp), -1) @ v

    return torch_call, jax_call


def explained_masks(right, wrong):
    arrays = drawn(q=(5, 5), k=(5, 5), v=(5, 5))
    inputs = {"x": normal(B, T, 5)}
    return explained(attention(right)[0], attention(wrong)[1], arrays, inputs)


def test_a_mask_of_ones_and_zeros_added_to_scores_hides_nothing():
    seen = np.tri(T, dtype=bool)
    edit = explained_masks(
        lambda s, xp: s.masked_fill(~torch.tensor(seen), -torch.inf),
        lambda s, xp: s + xp.where(seen, 1.0, 0.0),
    )
    assert edit is not None
    assert "causality" in edit.base
    assert edit.target.startswith("1 and 0 added to scores, which hides nothing")


def test_the_number_added_to_masked_scores_is_told():
    # The first query sees nothing: what is added to all alike changes nothing.
    seen = np.tri(T, k=-1, dtype=bool)
    edit = explained_masks(
        lambda s, xp: s.masked_fill(~torch.tensor(seen), -1e30),
        lambda s, xp: s + xp.where(seen, 0.0, LOW),
    )
    assert edit is not None
    assert (edit.base, edit.target) == (
        "masked scores set to -1e+30",
        "-10000 added to masked scores",
    )


def test_masks_that_are_added_one_after_the_other_are_told_from_one():
    causal, padding = ~np.tri(T, dtype=bool), np.array([[[True] * T], [[False] * 5 + [True] * 2]])
    edit = explained_masks(
        lambda s, xp: s + torch.tensor(LOW * causal) + torch.tensor(LOW * padding),
        lambda s, xp: s + LOW * (causal | padding),
    )
    assert edit is not None
    assert edit.base == "masks added one after the other, -10000 and -10000"
    assert edit.target == "one mask, -10000 added to masked scores"


def test_a_norm_that_one_side_alone_applies():
    def right(p, inputs):
        return inputs["x"] @ p["first"] @ p["head"]

    def wrong(p, inputs):
        h = inputs["x"] @ p["first"]
        kept = h - h.mean(-1, keepdims=True)
        h = kept / jnp.sqrt(jnp.square(kept).mean(-1, keepdims=True) + 1e-5)
        return (h * p["weight"]) @ p["head"]

    arrays = drawn(first=(5, 8), head=(8, 4), weight=(8,))
    edit = explained(right, wrong, arrays, {"x": normal(B, T, 5)})
    assert edit is not None
    assert "after layer norm" in edit.target


def test_both_parameters_of_another_norm():
    def right(p, inputs):
        h = F.layer_norm(inputs["x"], (8,), p["w"], p["b"])
        return F.layer_norm(h @ p["m"], (8,), p["w2"], p["b2"])

    def normed(x, weight, bias):
        kept = x - x.mean(-1, keepdims=True)
        return kept / jnp.sqrt(jnp.square(kept).mean(-1, keepdims=True) + 1e-5) * weight + bias

    def wrong(p, inputs):
        return normed(normed(inputs["x"], p["w"], p["b"]) @ p["m"], p["w"], p["b"])

    arrays = drawn(w=(8,), b=(8,), w2=(8,), b2=(8,), m=(8, 8))
    edit = explained(right, wrong, arrays, {"x": normal(B, T, 8)})
    assert edit is not None
    assert "parameters w2 and b2" in edit.base
    assert "parameters w and b" in edit.target


def test_heads_tiled_where_the_other_side_makes_no_copies():
    def right(p, inputs):
        q = (inputs["x"] @ p["q"]).reshape(B, T, 4, H).transpose(1, 2)
        k = (inputs["x"] @ p["k"]).reshape(B, T, 2, H).transpose(1, 2).repeat(1, 2, 1, 1)
        return (q @ k.mT).softmax(-1)

    def wrong(p, inputs):
        q = (inputs["x"] @ p["q"]).reshape(B, T, 2, 2, H)
        k = (inputs["x"] @ p["k"]).reshape(B, T, 2, H)
        scores = jnp.einsum("btkgh,bskh->bkgts", q, k)
        return jax.nn.softmax(scores, -1).reshape(B, 4, T, T)

    arrays = drawn(q=(5, 4 * H), k=(5, 2 * H))
    edit = explained(right, wrong, arrays, {"x": normal(B, T, 5)})
    assert edit is not None
    assert "2 times over (tile)" in edit.base
    assert "2 times in a row (repeat)" in edit.target
