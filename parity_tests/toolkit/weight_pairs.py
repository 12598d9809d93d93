"""Pairs of the same model in torch and in a JAX library, written as their users write them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


@dataclass(frozen=True)
class Pair:
    """Two builders and the inputs of both."""

    torch: Callable[[], Any]
    jax: Callable[[], Any]
    shapes: tuple[tuple[int, ...], ...]
    options: dict[str, Any] = field(default_factory=dict)
    needs: str = ""


PAIRS: dict[str, Pair] = {}


def pair(name: str, torch_builder: Callable, jax_builder: Callable, *shapes: tuple, **more) -> None:
    PAIRS[name] = Pair(torch_builder, jax_builder, shapes, **more)


class Torch(nn.Module):
    """Modules by name and a function of them and the inputs."""

    def __init__(self, function: Callable, **modules: nn.Module):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


class Linen(linen.Module):
    """A function of the module and the inputs."""

    function: Callable

    @linen.compact
    def __call__(self, *inputs):
        return self.function(self, *inputs)


def channels_last(x):
    return jnp.moveaxis(x, 1, -1)


def channels_first(x):
    return jnp.moveaxis(x, -1, 1)


# Attention: fused and split projections, heads as an axis or not.
def torch_heads(attention, x):
    q, k, v = (
        p(x).unflatten(-1, (4, 4)).transpose(1, 2) for p in (attention.q, attention.k, attention.v)
    )
    return attention.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def torch_split():
    return Torch(torch_heads, q=nn.Linear(16, 16), k=nn.Linear(16, 16), v=nn.Linear(16, 16),
                 o=nn.Linear(16, 16))  # fmt: skip


def torch_multihead():
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    return Torch(lambda m, x: m.attn(x, x, x, need_weights=False)[0], attn=attention)


def linen_fused(_, x):
    qkv = linen.Dense(48, name="c_attn")(x).reshape(*x.shape[:2], 3, 4, 4)
    y = linen.dot_product_attention(*(qkv[:, :, i] for i in range(3)))
    return linen.Dense(16, name="c_proj")(y.reshape(x.shape))


def linen_multihead(_, x):
    return linen.MultiHeadDotProductAttention(4, name="attention")(x, x)


def torch_fused():
    def forward(m, x):
        q, k, v = (a.unflatten(-1, (4, 4)).transpose(1, 2) for a in m.qkv(x).chunk(3, -1))
        return m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    return Torch(forward, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


for torch_name, builder in (
    ("split", torch_split), ("MultiheadAttention", torch_multihead), ("fused", torch_fused)
):  # fmt: skip
    for jax_name, function in (("fused", linen_fused), ("DenseGeneral", linen_multihead)):
        pair(f"attention, {torch_name} beside {jax_name}", builder,
             lambda function=function: Linen(function), (2, 5, 16))  # fmt: skip

# Convolutions: every size the same, so that no shape tells one axis from another.
for rank, layer in ((1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)):
    pair(
        f"convolution of {rank} dimensions",
        lambda layer=layer: Torch(lambda m, x: m.conv(x), conv=layer(3, 3, 3, padding=1)),
        lambda rank=rank: Linen(
            lambda _, x: channels_first(linen.Conv(3, (3,) * rank, name="conv")(channels_last(x)))
        ),
        (2, 3, *(4,) * rank),
    )
for transposed in (False, True):
    pair(
        f"transposed convolution, transpose_kernel={transposed}",
        lambda: Torch(lambda m, x: m.up(x), up=nn.ConvTranspose2d(3, 3, 2, stride=2)),
        lambda transposed=transposed: Linen(
            lambda _, x: channels_first(
                linen.ConvTranspose(
                    3, (2, 2), (2, 2), "VALID", name="up", transpose_kernel=transposed
                )(channels_last(x))
            )
        ),
        (2, 3, 4, 4),
    )
pair(
    "grouped convolution",
    lambda: Torch(lambda m, x: m.conv(x), conv=nn.Conv1d(6, 6, 3, padding=1, groups=3)),
    lambda: Linen(
        lambda _, x: channels_first(
            linen.Conv(6, (3,), feature_group_count=3, name="conv")(channels_last(x))
        )
    ),
    (2, 6, 5),
)
pair(
    "patches by a dense layer",
    lambda: Torch(lambda m, x: m.patch(x).flatten(2).transpose(1, 2), patch=nn.Conv2d(3, 5, 2, 2)),
    lambda: Linen(
        lambda _, x: linen.Dense(5, name="patch")(
            channels_last(x).reshape(2, 2, 2, 2, 2, 3).swapaxes(2, 3).reshape(2, 4, 12)
        )
    ),
    (2, 3, 4, 4),
)


# Norms with statistics, weight norm.
def trained(module: nn.Module) -> nn.Module:
    for _ in range(3):
        module(torch.randn(8, 5) + 1)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.eval()


def linen_norms(_, x):
    x = linen.BatchNorm(use_running_average=True, name="bn")(x)
    return linen.LayerNorm(1e-5, use_fast_variance=False, name="ln")(x)


pair(
    "norms and running statistics",
    lambda: trained(Torch(lambda m, x: m.ln(m.bn(x)), bn=nn.BatchNorm1d(5), ln=nn.LayerNorm(5))),
    lambda: Linen(linen_norms),
    (4, 5),
)


def linen_weight_norm(_, x):
    dense = linen.Dense(4, name="dense")
    # A tiny epsilon: torch's norm of rows has none.
    return linen.WeightNorm(dense, epsilon=1e-30, variable_filter={"kernel"}, name="norm")(x)


pair(
    "weight norm",
    lambda: trained(Torch(lambda m, x: m.dense(x), dense=weight_norm(nn.Linear(5, 4)))),
    lambda: Linen(linen_weight_norm),
    (4, 5),
)


# Lists of layers: apart, stacked by a scan, named otherwise.
class TorchBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def forward(self, x):
        return x + self.fc2(self.fc1(self.norm(x)).relu())


class LinenBlock(linen.Module):
    names: tuple[str | None, ...] = ("norm", "fc1", "fc2")

    @linen.compact
    def __call__(self, x, _=None):
        norm, first, second = self.names
        y = linen.LayerNorm(1e-5, use_fast_variance=False, name=norm)(x)
        y = jax.nn.relu(linen.Dense(6, name=first)(y))
        return x + linen.Dense(6, name=second)(y), None


def torch_blocks(count: int = 12):
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([TorchBlock() for _ in range(count)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Blocks()


def linen_blocks(prefix: str | None, names: tuple[str | None, ...]):
    def forward(_, x):
        for i in range(12):
            name = f"{prefix}_{i}" if prefix else None
            x, _ = LinenBlock(names, name=name)(x)
        return x

    return Linen(forward)


def linen_scanned(axis: int):
    def forward(_, x):
        scanned = linen.scan(LinenBlock, variable_axes={"params": axis},
                             split_rngs={"params": True}, length=12)  # fmt: skip
        return scanned(name="stack")(x, None)[0]

    return Linen(forward)


for title, build in {
    "named alike": lambda: linen_blocks("layers", ("norm", "fc1", "fc2")),
    "named otherwise": lambda: linen_blocks("h", ("ln", "inner", "outer")),
    "named by the library": lambda: linen_blocks(None, (None, None, None)),
    "scanned": lambda: linen_scanned(0),
    "scanned along the last axis": lambda: linen_scanned(-1),
}.items():
    pair(f"twelve blocks, {title}", torch_blocks, build, (2, 6))

pair(
    "sequences",
    lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)),
    lambda: linen.Sequential(
        [linen.Dense(6), jax.nn.relu, linen.Dense(6), jax.nn.relu, linen.Dense(6)]
    ),
    (2, 6),
)


# Recurrent layers.
def recurrent(layer: nn.Module) -> nn.Module:
    return Torch(lambda m, x: m.rnn(x)[0], rnn=layer)


for title, layer, cell in (
    ("LSTM", nn.LSTM, linen.OptimizedLSTMCell),
    ("LSTM, plain cell", nn.LSTM, linen.LSTMCell),
    ("GRU", nn.GRU, linen.GRUCell),
    ("RNN", nn.RNN, linen.SimpleCell),
):
    pair(
        f"Linen's {title}",
        lambda layer=layer: recurrent(layer(5, 5, 2, batch_first=True)),
        lambda cell=cell: linen.Sequential([linen.RNN(cell(5)), linen.RNN(cell(5))]),
        (2, 4, 5),
    )
pair(
    "a bidirectional LSTM",
    lambda: recurrent(nn.LSTM(5, 5, batch_first=True, bidirectional=True)),
    lambda: linen.Bidirectional(linen.RNN(linen.LSTMCell(5)), linen.RNN(linen.LSTMCell(5))),
    (2, 4, 5),
)
for title, layer, cell in (
    ("LSTM", nn.LSTM, nnx.OptimizedLSTMCell), ("LSTM, plain cell", nn.LSTM, nnx.LSTMCell),
    ("RNN", nn.RNN, partial(nnx.SimpleCell, dtype=jnp.float64)),
):  # fmt: skip
    pair(
        f"NNX's {title}",
        lambda layer=layer: recurrent(layer(5, 5, batch_first=True)),
        lambda cell=cell: nnx.RNN(cell(5, 5, rngs=nnx.Rngs(0))),
        (2, 4, 5),
    )


def equinox_scan(kind: str):
    def build():
        import equinox as eqx

        cell = getattr(eqx.nn, f"{kind}Cell")(5, 5, key=jax.random.key(0))

        def run(cell, x):
            def step(state, now):
                state = cell(now, state)
                return state, state[0] if kind == "LSTM" else state

            def one(sequence):
                zeros = jnp.zeros(5, x.dtype)
                start = (zeros, zeros) if kind == "LSTM" else zeros
                return jax.lax.scan(step, start, sequence)[1]

            return jax.vmap(one)(x)

        return run, cell

    return build


def haiku_scan():
    import haiku as hk

    def run(x):
        core = hk.LSTM(5)
        return hk.dynamic_unroll(core, x, core.initial_state(2), time_major=False)[0]

    return hk.transform(run)


for layer in (nn.LSTM, nn.GRU):
    pair(
        f"Equinox's {layer.__name__}",
        lambda layer=layer: recurrent(layer(5, 5, batch_first=True)),
        equinox_scan(layer.__name__),
        (2, 4, 5),
        needs="equinox",
    )
pair("Haiku's LSTM", lambda: recurrent(nn.LSTM(5, 5, batch_first=True)), haiku_scan, (2, 4, 5),
     needs="haiku")  # fmt: skip


# The same small network in every library.
def torch_network():
    net = Torch(
        lambda m, x: m.out(m.bn(m.conv(x)).relu().mean((2, 3))),
        conv=nn.Conv2d(3, 4, 3, padding=1), bn=nn.BatchNorm2d(4), out=nn.Linear(4, 4),
    )  # fmt: skip
    for _ in range(3):
        net(torch.randn(8, 3, 6, 6) + 1)
    return net.eval()


class NnxNetwork(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.bn = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)
        self.out = nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.bn(self.conv(channels_last(x)))).mean((1, 2)))


def haiku_network():
    import haiku as hk

    def run(x, is_training):
        x = hk.Conv2D(4, 3, name="stem")(channels_last(x))
        x = hk.BatchNorm(True, True, 0.9, eps=1e-5)(x, is_training)
        return hk.Linear(4)(jax.nn.relu(x).mean((1, 2)))

    return hk.transform_with_state(run)


def equinox_network():
    import equinox as eqx

    keys = jax.random.split(jax.random.key(0))
    conv = eqx.nn.Conv2d(3, 4, 3, padding=1, key=keys[0])
    tree = {
        "conv": conv, "out": eqx.nn.Linear(4, 4, key=keys[1]),
        "bn": {name: np.ones(4) for name in ("scale", "bias", "mean", "var")},
    }  # fmt: skip

    def run(tree, x):
        norm = {name: a[:, None, None] for name, a in tree["bn"].items()}

        def one(x):
            y = (tree["conv"](x) - norm["mean"]) / jnp.sqrt(norm["var"] + 1e-5)
            return tree["out"](jax.nn.relu(y * norm["scale"] + norm["bias"]).mean((1, 2)))

        return jax.vmap(one)(x)

    return run, tree


pair("a network in NNX", torch_network, lambda: NnxNetwork(nnx.Rngs(0)), (2, 3, 6, 6))
pair("a network in Haiku", torch_network, haiku_network, (2, 3, 6, 6),
     options={"is_training": False}, needs="haiku")  # fmt: skip
pair("a network in Equinox", torch_network, equinox_network, (2, 3, 6, 6), needs="equinox")


# Functions of dictionaries.
def arrays_of(*sizes: tuple[int, int]):
    return {f"w{i}": np.ones(size) for i, size in enumerate(sizes)} | {
        f"b{i}": np.ones(size[1]) for i, size in enumerate(sizes)
    }


pair(
    "a function of a flat dictionary",
    lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)),
    lambda: (
        lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"],
        arrays_of((5, 7), (7, 3)),
    ),
    (2, 5),
)
pair(
    "a function on either side",
    lambda: (
        lambda p, x: F.linear(F.linear(x, p["a"]["weight"]).relu(), p["b"]["weight"]),
        {"a": {"weight": torch.randn(7, 5)}, "b": {"weight": torch.randn(3, 7)}},
    ),
    lambda: (
        lambda p, x: jax.nn.relu(x @ p["a"]["kernel"]) @ p["b"]["kernel"],
        {"a": {"kernel": np.ones((5, 7))}, "b": {"kernel": np.ones((7, 3))}},
    ),
    (2, 5),
)


# A head tied in torch and separate in JAX.
def torch_tied():
    model = Torch(lambda m, x: m.head(x @ m.embed.weight), embed=nn.Embedding(7, 5),
                  head=nn.Linear(5, 7, bias=False))  # fmt: skip
    model.head.weight = model.embed.weight
    return model


def linen_untied(_, x):
    table = linen.Embed(7, 5, name="embed")
    return linen.Dense(7, use_bias=False, name="lm_head")(x @ table(jnp.arange(7)))


pair("a head tied on one side", torch_tied, lambda: Linen(linen_untied), (2, 7))
