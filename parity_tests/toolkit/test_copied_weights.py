"""Where both sides are loaded, the map is found by content, and wrong copies are named."""

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from parity.models.jax_models import jax_model
from parity.models.torch_models import torch_model
from parity.weights.contents import find_copying_faults, match_contents
from parity.weights.matching import find_map


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(12, 12), nn.Linear(12, 12)
        self.conv, self.rnn = nn.Conv2d(3, 3, 3), nn.RNN(5, 5)
        self.norm = nn.BatchNorm1d(12)
        for tensor in [*self.parameters(), self.norm.running_mean, self.norm.running_var]:
            nn.init.normal_(tensor)


def loaded():
    """A torch model, a JAX model, the map between them, and right copies of torch's weights."""
    torch.manual_seed(0)
    theirs = torch_model(Net())
    tree = {name: {"kernel": np.ones((12, 12)), "bias": np.ones(12)} for name in ("query", "key")}
    tree["conv"] = {"kernel": np.ones((3, 3, 3, 3)), "bias": np.ones(3)}
    tree["norm"] = {name: np.ones(12) for name in ("scale", "bias", "mean", "var")}
    tree["rnn"] = {"i": {"kernel": np.ones((5, 5)), "bias": np.ones(5)},
                   "h": {"kernel": np.ones((5, 5))}}  # fmt: skip
    ours = jax_model((lambda tree, x: x, tree))
    found = find_map(theirs, ours)
    found.require_complete()
    return theirs, found, {n: np.array(a) for n, a in found.to_jax(theirs.arrays).items()}


def test_right_copies_have_no_faults():
    theirs, found, copied = loaded()
    assert find_copying_faults(found, theirs.arrays, copied) == []


FAULTS = {
    "transposed": ("query/kernel", lambda a, _: a.T, "is query.weight transposed"),
    "another layer's": (
        "query/kernel",
        lambda _, copied: copied["key/kernel"],
        "holds key.weight, not query.weight",
    ),
    "halves interleaved in each head": (
        "query/kernel",
        lambda a, _: a.reshape(12, 3, 2, 2).swapaxes(2, 3).reshape(12, 12),
        "is query.weight with axis 1 as [2, 2] where it is [2, 2] in each of 3 groups",
    ),
    "heads and their width exchanged": (
        "query/kernel",
        lambda a, _: a.reshape(12, 3, 4).swapaxes(1, 2).reshape(12, 12),
        "is query.weight with axis 1 as [4, 3] where it is [3, 4]",
    ),
    "kernel as torch has it": (
        "conv/kernel",
        lambda a, _: a.transpose(3, 2, 0, 1),
        "is conv.weight with its axes permuted (3, 2, 0, 1)",
    ),
    "kernel flipped": (
        "conv/kernel",
        lambda a, _: a[::-1, ::-1],
        "is conv.weight flipped along axes 0, 1",
    ),
    "stale statistics": (
        "norm/var",
        lambda a, _: np.ones_like(a),
        "holds only 1: norm.running_var was never copied",
    ),
    "one bias of two": (
        "rnn/i/bias",
        None,
        "is rnn.bias_ih_l0 alone: rnn.bias_hh_l0 is not added",
    ),
    "rounded": (
        "key/kernel",
        lambda a, _: a.astype(ml_dtypes.bfloat16).astype(np.float32),
        "is key.weight rounded to bfloat16",
    ),
    "scale of another convention": ("norm/scale", lambda a, _: a - 1, "is norm.weight minus 1"),
    "scale folded in": ("query/kernel", lambda a, _: a / 2, "is query.weight times 0.5"),
    "some rows": (
        "key/kernel",
        lambda a, _: np.concatenate([a[:, :8], 0 * a[:, 8:]], 1),
        "differs from key.weight at 8:12 of axis 1, the rest is equal",
    ),
    "other numbers": ("key/bias", lambda a, _: a[::-1] ** 2, "holds other numbers than key.bias"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_copy_is_named(fault):
    theirs, found, copied = loaded()
    name, spoil, said = FAULTS[fault]
    spoilt = theirs.arrays["rnn.bias_ih_l0"] if spoil is None else spoil(copied[name], copied)
    (finding,) = find_copying_faults(found, theirs.arrays, copied | {name: spoilt})
    assert str(finding) == f"{name} {said}"
    assert finding.error > 1e-4


def test_alternatives_are_settled_by_what_the_arrays_hold():
    """Two layers of one size and names that say nothing: the numbers decide."""
    torch.manual_seed(0)
    theirs = torch_model(nn.ModuleDict({"red": nn.Linear(4, 4), "blue": nn.Linear(4, 4)}))
    tree = {name: {"kernel": np.ones((4, 4)), "bias": np.ones(4)} for name in ("hot", "cold")}
    found = find_map(theirs, jax_model((lambda tree, x: x, tree)))
    copied = {
        f"{ours}/{leaf}": array
        for ours, name in (("hot", "red"), ("cold", "blue"))
        for leaf, array in (
            ("kernel", theirs.arrays[f"{name}.weight"].T), ("bias", theirs.arrays[f"{name}.bias"]),
        )
    }  # fmt: skip
    settled = match_contents(found, theirs.arrays, copied)
    assert find_copying_faults(settled, theirs.arrays, copied) == []
    assert settled.alternatives == {}


def test_an_array_of_no_known_layer_is_found_by_its_numbers():
    theirs = torch_model(nn.Conv2d(2, 3, 5, bias=False))
    tree = {"patches": np.ones((5, 3, 10))}
    found = find_map(theirs, jax_model((lambda tree, x: x, tree)))
    copied = {"patches": theirs.arrays["weight"].transpose(2, 0, 3, 1).reshape(5, 3, 10)}
    settled = match_contents(found, theirs.arrays, copied)
    settled.require_complete()
    assert [str(entry) for entry in settled.entries] == [
        "patches = weight permuted 2,0,3,1 reshaped 5,3,10  # by its numbers"
    ]
