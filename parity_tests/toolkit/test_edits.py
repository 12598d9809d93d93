"""Faults of a block that has no taps and shares no names, each said in the field's words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from parity_tests.toolkit.explaining import drawn, explained

B, T, D, N, K, W = 2, 7, 24, 4, 2, 40
H = D // N


def block_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"q": (D, D), "k": (D, K * H), "v": (D, K * H), "o": (D, D)}
    shapes |= {"gate": (D, W), "up": (D, W), "down": (W, D)}
    arrays = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    return arrays | drawn(first=(D,), second=(D,))


def angles(theta: float) -> np.ndarray:
    return np.outer(np.arange(T), theta ** (-np.arange(0, H, 2) / H))


def torch_block(p, inputs):
    def norm(x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    def rotated(t):
        return t * cos + torch.cat([-t[..., H // 2 :], t[..., : H // 2]], -1) * sin

    x = inputs["x"]
    h = norm(x, p["first"])
    q, k, v = ((h @ p[n]).unflatten(-1, (-1, H)).transpose(1, 2) for n in "qkv")
    a = torch.tensor(angles(1e4))
    cos, sin = (torch.cat([f, f], -1) for f in (a.cos(), a.sin()))
    k, v = (t.repeat_interleave(N // K, 1) for t in (rotated(k), v))
    scores = rotated(q) @ k.mT * H**-0.5
    allowed = torch.ones(T, T, dtype=torch.bool).tril()
    w = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    x = x + (w @ v).transpose(1, 2).flatten(2) @ p["o"]
    h = norm(x, p["second"])
    return x + (F.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def jax_block(fault: str):
    def norm(x, weight):
        return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * weight

    def rotated(t):
        if fault == "no rotary":
            return t
        a = angles(5e5 if fault == "theta" else 1e4)[:, None]
        if fault == "interleaved":
            cos, sin = (np.repeat(f(a), 2, -1) for f in (np.cos, np.sin))
            turned = jnp.stack([-t[..., 1::2], t[..., ::2]], -1).reshape(t.shape)
        else:
            cos, sin = (np.concatenate([f(a), f(a)], -1) for f in (np.cos, np.sin))
            turned = jnp.concatenate([-t[..., H // 2 :], t[..., : H // 2]], -1)
        return t * cos + turned * sin

    def repeated(t):
        if fault == "tile":
            return jnp.tile(t, (1, 1, N // K, 1))
        return jnp.repeat(t, N // K, 2)

    def block(p, inputs):
        x = inputs["x"]
        h = norm(x, p["first"])
        q, k, v = ((h @ p[n]).reshape(B, T, -1, H) for n in "qkv")
        k, v = (repeated(t) for t in (rotated(k), v))
        scores = jnp.einsum("btnh,bsnh->bnts", rotated(q), k)
        scores = scores * (D if fault == "scale" else H) ** -0.5
        mask = np.tri(T, dtype=bool)
        if fault == "window":
            mask &= ~np.tri(T, k=-3, dtype=bool)
        if fault != "no mask":
            scores = jnp.where(mask, scores, -3.0 if fault == "weak mask" else -jnp.inf)
        w = jax.nn.softmax(scores, 1 if fault == "axis" else -1)
        y = jnp.einsum("bnts,bsnh->btnh", w, v)
        y = (y.swapaxes(1, 2) if fault == "merge" else y).reshape(B, T, D)
        x = (h if fault == "residual" else x) + y @ p["o"]
        h = norm(x, p["second"])
        gate, up = h @ p["gate"], h @ p["up"]
        y = gate * jax.nn.silu(up) if fault == "other branch" else jax.nn.silu(gate) * up
        return x + y @ p["down"]

    return block


@pytest.mark.parametrize(
    ("fault", "base", "target"),
    [
        ("theta", "rotary base theta 10000", "rotary base theta 500000"),
        ("interleaved", "one of each half (0, 3)", "neighbours (0, 1)"),
        ("no rotary", "rotary embedding", "no rotary embedding"),
        ("tile", "2 heads repeated 2 times in a row", "all 2 heads in order, 2 times over"),
        ("scale", "scaled by 0.408248 = 6**-0.5", "scaled by 0.204124 = 24**-0.5"),
        ("window", "causality", "a window of 3 keys"),
        ("no mask", "causality", "no mask"),
        ("weak mask", "set to -inf", "set to -3"),
        ("axis", "softmax over the keys (axis -1)", "softmax over the heads (axis -3)"),
        ("merge", "axes transposed to 2 x 7 x 4 x 6", "merged without the transpose"),
        ("residual", "sum of the input x", "sum of the product"),
        ("other branch", "silu of", "the two exchanged"),
    ],
)
def test_a_fault_of_a_block_is_named(fault, base, target):
    x = np.random.default_rng(1).normal(size=(B, T, D))
    edit = explained(torch_block, jax_block(fault), block_arrays(), {"x": x})
    assert edit is not None
    assert base in edit.base
    assert target in edit.target


def test_an_equal_block_has_no_pair():
    x = np.random.default_rng(1).normal(size=(B, T, D))
    assert explained(torch_block, jax_block(""), block_arrays(), {"x": x}) is None


def test_what_no_edit_explains_is_not_explained():
    """A function of another kind, which agrees with nothing in the list."""
    arrays, inputs = drawn(a=(6, 8), b=(8, 3)), drawn(x=(5, 6))
    edit = explained(
        lambda p, i: torch.tanh(i["x"] @ p["a"]) @ p["b"],
        lambda p, i: jnp.sin(3 * (i["x"] @ p["a"]) ** 2) @ p["b"],
        arrays,
        inputs,
    )
    assert edit is None
