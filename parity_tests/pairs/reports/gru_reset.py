"""The reset gate of a GRU: torch applies it behind the recurrent matrix, the paper before it.

https://github.com/pytorch/pytorch/issues/8153
"""

import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.gru = tnn.GRU(3, 5, batch_first=True, bias=False)

    def forward(self, x):
        return self.gru(x)[0]


def cell(params, h, x):
    xr, xz, xn = jnp.split(x @ params["w_ih"], 3, -1)
    hr, hz, hn = jnp.split(h @ params["w_hh"], 3, -1)
    r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
    n = jnp.tanh(xn + r * hn)
    return (1 - z) * n + z * h


def cell_of_paper(params, h, x):
    hidden = params["w_hh"]
    xr, xz, xn = jnp.split(x @ params["w_ih"], 3, -1)
    hr, hz = jnp.split(h @ hidden[:, :10], 2, -1)
    r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
    n = jnp.tanh(xn + (r * h) @ hidden[:, 10:])  # fault
    return (1 - z) * n + z * h


def unrolled(step):
    def run(params, x):
        def advance(h, x):
            h = step(params, h, x)
            return h, h

        start = jnp.zeros((len(x), 5), x.dtype)
        return jax.lax.scan(advance, start, x.swapaxes(0, 1))[1].swapaxes(0, 1)

    return run


KEYS = jax.random.split(jax.random.key(0))
PARAMS = {
    "w_ih": jax.random.normal(KEYS[0], (3, 15)),
    "w_hh": jax.random.normal(KEYS[1], (5, 15)),
}


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return unrolled(cell), PARAMS


def build_faulty():
    return unrolled(cell_of_paper), PARAMS
