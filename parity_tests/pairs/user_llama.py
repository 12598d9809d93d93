"""A decoder block of a user's own, and the twelve mistakes that porters make in it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn as tnn
from torch.nn import functional as F

WIDTH, HEADS, KV_HEADS, STEPS, HIDDEN = 24, 4, 2, 7, 40
SIZE = WIDTH // HEADS


def angles(theta):
    return np.outer(np.arange(STEPS), theta ** (-np.arange(0, SIZE, 2) / SIZE))


class TorchBlock(tnn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = tnn.RMSNorm(WIDTH, eps=1e-6), tnn.RMSNorm(WIDTH, eps=1e-6)
        self.q_proj, self.o_proj = (tnn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (
            tnn.Linear(WIDTH, KV_HEADS * SIZE, bias=False) for _ in range(2)
        )
        self.gate, self.up = (tnn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = tnn.Linear(HIDDEN, WIDTH, bias=False)

    def rotate(self, t):
        turns = torch.tensor(angles(1e4)).to(t)
        cos, sin = (torch.cat([f, f], -1) for f in (turns.cos(), turns.sin()))
        return t * cos + torch.cat([-t[..., SIZE // 2 :], t[..., : SIZE // 2]], -1) * sin

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (
            projection(h).unflatten(-1, (-1, SIZE)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (self.rotate(k), v))
        scores = self.rotate(q) @ k.transpose(-1, -2) * SIZE**-0.5
        hidden = ~torch.ones(STEPS, STEPS, dtype=torch.bool).tril()
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        x = x + self.o_proj((weights @ v).transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Block(nn.Module):
    fault: str = ""

    def rotate(self, t):
        theta = 5e5 if self.fault == "theta" else 1e4
        turns = angles(theta).astype(t.dtype)[:, None]  # fault theta
        if self.fault == "unrotated":
            return t  # fault unrotated
        if self.fault == "interleaved":
            cos, sin = (np.repeat(f(turns), 2, -1) for f in (np.cos, np.sin))  # fault interleaved
            pairs = jnp.stack([-t[..., 1::2], t[..., ::2]], -1)  # fault interleaved
            return t * cos + pairs.reshape(t.shape) * sin  # fault interleaved
        cos, sin = (np.concatenate([f(turns)] * 2, -1) for f in (np.cos, np.sin))  # fault theta
        halves = jnp.concatenate([-t[..., SIZE // 2 :], t[..., : SIZE // 2]], -1)
        return t * cos + halves * sin  # fault theta

    def attend(self, q, k, v):
        scale = WIDTH**-0.5 if self.fault == "scale" else SIZE**-0.5
        scores = jnp.einsum("btnh,bsnh->bnts", q, k) * scale  # fault scale, unrotated
        allowed = np.tri(STEPS, dtype=bool)
        if self.fault == "window":
            allowed &= ~np.tri(STEPS, k=-3, dtype=bool)
        if self.fault != "not_causal":
            fill = -3.0 if self.fault == "weak_mask" else jnp.finfo(scores.dtype).min
            scores = jnp.where(allowed, scores, fill)  # fault weak_mask, window
        axis = 1 if self.fault == "axis" else -1
        weights = jax.nn.softmax(scores, axis)  # fault axis, not_causal
        return jnp.einsum("bnts,bsnh->btnh", weights, v)

    @nn.compact
    def __call__(self, x):
        def dense(name, size, h):
            return nn.Dense(size, use_bias=False, name=name)(h)

        h = nn.RMSNorm(1e-6, use_fast_variance=False, name="norm1")(x)
        sizes = {"q_proj": WIDTH, "k_proj": KV_HEADS * SIZE, "v_proj": KV_HEADS * SIZE}
        q, k, v = (
            dense(name, size, h).reshape(*x.shape[:2], -1, SIZE) for name, size in sizes.items()
        )
        q, k, groups = self.rotate(q), self.rotate(k), HEADS // KV_HEADS  # fault unrotated
        if self.fault == "tiled":
            k, v = (jnp.tile(t, (1, 1, groups, 1)) for t in (k, v))  # fault tiled
        else:
            k, v = (jnp.repeat(t, groups, 2) for t in (k, v))
        y = self.attend(q, k, v)
        if self.fault == "merged":
            y = y.transpose(0, 2, 1, 3)  # fault merged
        y = y.reshape(x.shape)  # fault merged
        y = dense("o_proj", WIDTH, y)
        x = (h if self.fault == "residual" else x) + y  # fault residual
        h = nn.RMSNorm(1e-6, use_fast_variance=False, name="norm2")(x)
        gate, up = dense("gate", HIDDEN, h), dense("up", HIDDEN, h)
        if self.fault == "other_branch":
            gate, up = up, gate
        return x + dense("down", WIDTH, jax.nn.silu(gate) * up)  # fault other_branch


def build_torch():
    torch.manual_seed(0)
    block = TorchBlock().eval()
    for norm in (block.norm1, block.norm2):
        tnn.init.normal_(norm.weight, 1.0, 0.5)
    return block


def build_jax():
    return Block()


def build_theta():
    return Block("theta")


def build_interleaved():
    return Block("interleaved")


def build_unrotated():
    return Block("unrotated")


def build_tiled():
    return Block("tiled")


def build_scale():
    return Block("scale")


def build_window():
    return Block("window")


def build_not_causal():
    return Block("not_causal")


def build_weak_mask():
    return Block("weak_mask")


def build_axis():
    return Block("axis")


def build_merged():
    return Block("merged")


def build_residual():
    return Block("residual")


def build_other_branch():
    return Block("other_branch")
