"""A selective state space layer whose step is used without its softplus.

https://github.com/alxndrTL/mamba.py/issues/53
"""

import jax
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn import functional as F

WIDTH, STATE = 4, 3


class Scan(tnn.Module):
    def __init__(self):
        super().__init__()
        self.dt_proj, self.bc_proj = tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, 2 * STATE)
        self.a_log = tnn.Parameter(torch.randn(WIDTH, STATE))

    def forward(self, x):
        delta, (b, c) = F.softplus(self.dt_proj(x)), self.bc_proj(x).chunk(2, -1)
        decay = torch.exp(-delta[..., None] * self.a_log.exp())
        inflow = (delta * x)[..., None] * b[:, :, None]
        h, out = torch.zeros_like(decay[:, 0]), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + inflow[:, t]
            out.append((h * c[:, t, None]).sum(-1))
        return torch.stack(out, 1)


def scan(params, x, step=jax.nn.softplus):
    raw = x @ params["dt_proj"]["kernel"] + params["dt_proj"]["bias"]
    b, c = jnp.split(x @ params["bc_proj"]["kernel"] + params["bc_proj"]["bias"], 2, -1)
    delta = step(raw)
    decay = jnp.exp(-delta[..., None] * jnp.exp(params["a_log"]))  # fault
    inflow = (delta * x)[..., None] * b[:, :, None]  # fault

    def advance(h, now):
        decay, inflow, c = now
        h = decay * h + inflow
        return h, (h * c[:, None]).sum(-1)

    by_time = [t.swapaxes(0, 1) for t in (decay, inflow, c)]
    return jax.lax.scan(advance, jnp.zeros_like(decay[:, 0]), by_time)[1].swapaxes(0, 1)


def faulty_scan(params, x):
    return scan(params, x, step=lambda raw: raw)


def random(*shape):
    return 0.3 * jax.random.normal(jax.random.key(len(shape)), shape)


PARAMS = {
    "dt_proj": {"kernel": random(WIDTH, WIDTH), "bias": random(WIDTH)},
    "bc_proj": {"kernel": random(WIDTH, 2 * STATE), "bias": random(2 * STATE)},
    "a_log": random(WIDTH, STATE),
}


def build_torch():
    torch.manual_seed(0)
    return Scan().eval()


def build_jax():
    return scan, PARAMS


def build_faulty():
    return faulty_scan, PARAMS
