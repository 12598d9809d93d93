"""Ordinary small modules whose names, arguments or containers differ between the sides."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn as tnn


class Tied(tnn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = tnn.Embedding(30, 8), tnn.Linear(8, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


class LinenTied(nn.Module):
    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(30, 8, name="embed")
        return embed.attend(embed(ids))


class Positions(tnn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = tnn.Embedding(30, 8), tnn.Embedding(10, 8)

    def forward(self, ids):
        return self.tok(ids) + self.pos(torch.arange(ids.shape[1])[None])


class LinenPositions(nn.Module):
    @nn.compact
    def __call__(self, ids):
        steps = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        return nn.Embed(30, 8, name="tok")(ids) + nn.Embed(10, 8, name="pos")(steps)


class Dropped(tnn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.d, self.b = tnn.Linear(6, 8), tnn.Dropout(0.5), tnn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.d(self.a(x)))


class LinenDropped(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dropout(0.5)(nn.Dense(8, name="a")(x), deterministic=not train)
        return nn.Dense(3, name="b")(x)


class Batch(tnn.Module):
    def __init__(self):
        super().__init__()
        self.a = tnn.Linear(6, 3)

    def forward(self, batch):
        return {"logits": self.a(batch["x"])}


class LinenBatch(nn.Module):
    @nn.compact
    def __call__(self, batch):
        return {"logits": nn.Dense(3, name="a")(batch["x"])}


class Numbered(tnn.Module):
    def __init__(self):
        super().__init__()
        self.fc_1, self.fc_2 = tnn.Linear(6, 8), tnn.Linear(8, 3)

    def forward(self, x):
        return self.fc_2(torch.relu(self.fc_1(x)))


class LinenNumbered(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="fc_2")(nn.relu(nn.Dense(8, name="fc_1")(x)))


class Inner(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        return nn.Dense(3, name="fc_2")(nn.relu(nn.Dense(8, name="fc_1")(x))) + 0 * mask


class LinenMasked(nn.Module):
    """Hands its inner module an argument that the torch side does not have."""

    @nn.compact
    def __call__(self, x):
        return Inner(name="inner")(x, jnp.ones(()))


def seeded(cls):
    torch.manual_seed(0)
    return cls().eval()


def build_torch_tied():
    return seeded(Tied)


def build_torch_positions():
    return seeded(Positions)


def build_torch_dropped():
    return seeded(Dropped)


def build_torch_batch():
    return seeded(Batch)


def build_torch_numbered():
    return seeded(Numbered)


def build_torch_sequence():
    torch.manual_seed(0)
    return tnn.Sequential(tnn.Linear(6, 8), tnn.ReLU(), tnn.Linear(8, 3)).eval()


def build_jax_tied():
    return LinenTied()


def build_jax_positions():
    return LinenPositions()


def build_jax_dropped():
    return LinenDropped()


def build_jax_batch():
    return LinenBatch()


def build_jax_numbered():
    return LinenNumbered()


def build_jax_masked():
    return LinenMasked()


def build_jax_sequence():
    return nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(3)])


def batch():
    return {"batch": {"x": np.random.default_rng(0).normal(size=(4, 6))}}
