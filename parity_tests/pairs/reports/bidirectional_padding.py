"""The backward pass of a recurrent network over padded sequences must start at their ends.

https://github.com/google/flax/issues/2170
"""

import flax.linen as nn
import jax.numpy as jnp
import torch
from torch import nn as tnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

LENGTHS = [6, 4, 3]


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = tnn.LSTM(3, 4, batch_first=True, bidirectional=True)

    def forward(self, x):
        packed = pack_padded_sequence(x, LENGTHS, batch_first=True)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


class FlaxNet(nn.Module):
    knows_lengths: bool

    @nn.compact
    def __call__(self, x):
        lengths = jnp.array(LENGTHS)
        rnn = nn.Bidirectional(
            nn.RNN(nn.OptimizedLSTMCell(4, name="forward")),
            nn.RNN(nn.OptimizedLSTMCell(4, name="backward")),
        )
        y = rnn(x, seq_lengths=lengths if self.knows_lengths else None)  # fault
        return jnp.where((jnp.arange(x.shape[1]) < lengths[:, None])[..., None], y, 0.0)  # fault


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet(knows_lengths=True)


def build_faulty():
    return FlaxNet(knows_lengths=False)
