"""torch's LSTM has two biases and its gates in one matrix; Linen's has one bias and a scan.

https://github.com/google/flax/issues/3746
"""

import flax.linen as nn
import torch
from torch import nn as tnn


class Net(tnn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = tnn.LSTM(5, 6, batch_first=True)
        self.out = tnn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


class FlaxNet(nn.Module):
    def setup(self):
        self.lstm = nn.RNN(nn.OptimizedLSTMCell(6))
        self.out = nn.Dense(3)

    def __call__(self, x):
        return self.out(self.lstm(x))


def build_torch():
    torch.manual_seed(0)
    return Net().eval()


def build_jax():
    return FlaxNet()
