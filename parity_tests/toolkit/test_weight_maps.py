"""Weights cross by a map that is found, printed, saved, edited and followed either way."""

from functools import cache

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.align.sides import Inputs, jax_program, torch_program
from parity.models.jax_models import jax_model
from parity.models.torch_models import torch_model
from parity.observe.settings import NotComparableError
from parity.weights.layout import read_layout
from parity.weights.matching import find_map
from parity.weights.settle import settle
from parity.weights.uses import find_uses
from parity.weights.weight_map import WeightMap, read_map
from parity_tests.toolkit.weight_pairs import PAIRS, Linen, Torch


@cache
def built(pair_name: str):
    pair = PAIRS[pair_name]
    if pair.needs:
        pytest.importorskip(pair.needs, reason=f"{pair.needs} is not installed")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=shape) for shape in pair.shapes]
    return (
        torch_model(pair.torch()),
        jax_model(pair.jax(), inputs, {}, pair.options),
        inputs,
    )


def wide(arrays):
    return {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in arrays.items()}


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_computes_the_same_with_the_weights_of_the_other(name):
    torch_side, jax_side, inputs = built(name)
    found = find_map(torch_side, jax_side)
    found.require_complete()
    theirs = wide(torch_side.arrays)
    ours = wide(jax_side.arrays | found.to_jax(theirs))
    tensors = {n: torch.tensor(a) for n, a in theirs.items()}
    expected = torch_side.call(tensors, [torch.tensor(x) for x in inputs], {}).detach().numpy()
    out = jax_side.call({n: jnp.asarray(a) for n, a in ours.items()}, inputs, {})
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert expected.std() > 0.01


@pytest.mark.parametrize("name", PAIRS)
def test_a_map_is_followed_backward(name):
    """Torch computes the same from JAX's weights: of two biases the first holds the sum."""
    torch_side, jax_side, _ = built(name)
    found = find_map(torch_side, jax_side)
    theirs = wide(torch_side.arrays)
    ours = found.to_jax(theirs)
    back = found.to_torch(ours)
    again = found.to_jax(theirs | back)
    assert set(back) >= torch_side.trainable
    for jax_name, array in ours.items():
        np.testing.assert_allclose(again[jax_name], array, rtol=1e-15, err_msg=jax_name)
    zeroed = {n for n in back if "bias_hh" in n and not back[n].all()}
    for torch_name in set(back) - zeroed:
        if "bias_ih" not in torch_name:
            np.testing.assert_array_equal(back[torch_name], theirs[torch_name])


@pytest.mark.parametrize("name", PAIRS)
def test_a_map_is_read_from_the_text_it_is_written_in(name):
    torch_side, jax_side, _ = built(name)
    found = find_map(torch_side, jax_side)
    again = read_map(found.to_text(), found.torch_shapes, found.jax_shapes)
    assert again == found.entries


def small() -> WeightMap:
    torch_side = torch_model(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3)))
    tree = {name: {"kernel": np.ones(size), "bias": np.ones(3)} for name, size in
            (("first", (2, 3)), ("second", (3, 3)))}  # fmt: skip
    return find_map(torch_side, jax_model((lambda tree, x: x, tree)))


def test_the_text_of_a_map_is_one_line_an_array():
    assert [str(entry) for entry in small().entries] == [
        "first/bias = 0.bias",
        "first/kernel = 0.weight permuted 1,0",
        "second/bias = 1.bias",
        "second/kernel = 1.weight permuted 1,0",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("first/kernel", "--map, line 1: expected JAX_NAME = TORCH_NAME and steps"),
        ("first/kernal = 0.weight", "JAX has no array first/kernal; did you mean first/kernel?"),
        ("first/kernel = 0.wait", "torch has no array '0.wait'; did you mean 0.weight?"),
        ("first/kernel = 0.weight", "this is (3, 2), first/kernel is (2, 3)"),
        ("first/kernel = 0.weight turned 1,0", "no step 'turned'; one of permuted"),
        ("first/kernel = joined 0 (0.weight", "expected ')', found 'the end'"),
        ("first/bias = 0.bias part 0 1:9", "axis 0 has no part 1:9 of 3"),
    ],
)
def test_a_line_that_cannot_be_followed_is_named(line, said):
    found = small()
    with pytest.raises(NotComparableError) as refused:
        read_map(line, found.torch_shapes, found.jax_shapes)
    assert said in str(refused.value)


def test_an_edited_line_takes_the_place_of_the_one_found():
    found = small()
    edited = read_map(
        "second/kernel = 1.weight  # as it is\n", found.torch_shapes, found.jax_shapes
    )
    arrays = {n: np.random.default_rng(0).normal(size=s) for n, s in found.torch_shapes.items()}
    made = found.replaced(edited).to_jax(arrays)
    np.testing.assert_array_equal(made["second/kernel"], arrays["1.weight"])
    np.testing.assert_array_equal(made["first/kernel"], arrays["0.weight"].T)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "conv.weight permuted 2,3,1,0",
        "attn.in_proj_weight part 0 0:16 permuted 1,0 reshaped 16,4,4",
        "joined 0 (q.weight, k.weight permuted 1,0, v.weight) permuted 1,0",
        "stacked 0 (sum (a, b), zeros 3) flipped 0",
        "b plus -1",
        "g reshaped ()",
    ],
)
def test_a_layout_is_read_as_it_is_printed(text):
    assert str(read_layout(text)) == text


def test_renames_take_wildcards():
    torch_side, _, inputs = built("twelve blocks, named alike")

    def forward(_, x):
        for i in range(12):
            # Named against their order.
            x = linen.Dense(6, name=f"b{i}_second")(x) + linen.Dense(6, name=f"b{i}_first")(x)
            x = linen.LayerNorm(name=f"b{i}_n")(x)
        return x

    jax_side = jax_model(Linen(forward), inputs)
    renames = {"b*_first": "layers.*.fc1", "b*_second": "layers.*.fc2", "b*_n": "layers.*.norm"}
    found = find_map(torch_side, jax_side, renames)
    entries = {entry.jax: entry.torch for entry in found.entries}
    assert entries["params/b11_second/kernel"] == ("layers.11.fc2.weight",)
    assert entries["params/b3_first/bias"] == ("layers.3.fc1.bias",)
    assert found.alternatives == {}


def test_what_has_no_counterpart_is_listed():
    torch_side = torch_model(nn.GRUCell(3, 5))
    from flax import nnx

    found = find_map(torch_side, jax_model(nnx.GRUCell(3, 5, rngs=nnx.Rngs(0))))
    with pytest.raises(NotComparableError) as refused:
        found.require_complete()
    assert "torch's bias_hh (15,) rows 10:15 (the hidden bias of the new gate)" in str(
        refused.value
    )
    assert "--map" in str(refused.value)
    missing = find_map(torch_model(nn.Linear(3, 5)), jax_model((len, {"other": np.ones((2, 2))})))
    with pytest.raises(NotComparableError, match=r"torch's weight \(5, 3\), bias \(5,\); JAX's "):
        missing.require_complete()


def test_where_several_layers_fit_the_others_are_listed():
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.red, self.blue = nn.Linear(4, 4), nn.Linear(4, 4)

    tree = {name: {"kernel": np.ones((4, 4)), "bias": np.ones(4)} for name in ("hot", "cold")}
    found = find_map(torch_model(Twins()), jax_model((lambda tree, x: x, tree)))
    for name in ("hot/kernel", "cold/kernel"):
        (entry,) = [e for e in found.entries if e.jax == name]
        other = {"red.weight", "blue.weight"} - set(entry.torch)
        assert other in [set(e.torch) for e in found.alternatives[name]]


def test_an_array_of_an_unknown_layer_is_laid_out_as_others_of_its_class():
    """Square kernels show no order of axes; those of the same class that are not square do."""

    class Transposed(linen.Module):
        features: int

        @linen.compact
        def __call__(self, x):
            size = (self.features, x.shape[-1])
            return x @ self.param("kernel", linen.initializers.normal(), size).T

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            for i, features in enumerate((4, 4, 7)):
                x = Transposed(features, name=f"fc{i}")(x)
            return x

    torch.manual_seed(0)
    torch_side = torch_model(nn.Sequential(*(nn.Linear(4, n, bias=False) for n in (4, 4, 7))))
    found = find_map(torch_side, jax_model(Net(), [np.ones((2, 4))]))
    assert [str(entry.to_jax) for entry in found.entries] == ["0.weight", "1.weight", "2.weight"]


def test_nothing_is_copied_that_is_no_weight():
    """Counters and ids are left as they are on either side."""
    torch_side = torch_model(nn.BatchNorm1d(3))
    flax = jax_model(linen.BatchNorm(use_running_average=True), [np.ones((2, 3))])
    found = find_map(torch_side, flax)
    assert "num_batches_tracked" not in {name for entry in found.entries for name in entry.torch}
    assert jax.tree.leaves(found.missing_torch) == []


class BlindTorch(nn.Module):
    def __init__(self, names: str):
        super().__init__()
        sizes = ((6,), (6,), (6, 6), (6, 6), (4, 6, 6))
        for name, size in zip(names.split(), sizes, strict=True):
            self.register_parameter(name, nn.Parameter(torch.randn(size)))
        self.names = names.split()

    def forward(self, x):
        a, b, c, d, e = (getattr(self, name) for name in self.names)
        y = (x - x.mean(-1, keepdim=True)) * b + a
        y = torch.relu(y @ d) @ c.T
        return x + torch.einsum("bd,edf->bef", y, e).sum(1)


class BlindLinen(linen.Module):
    names: str

    @linen.compact
    def __call__(self, x):
        draw = linen.initializers.normal()
        shift, scale, first, second, experts = (
            lambda *size, name=name: self.param(name, draw, size) for name in self.names.split()
        )
        y = (x - x.mean(-1, keepdims=True)) * scale(6) + shift(6)
        y = jax.nn.relu(y @ first(6, 6).T) @ second(6, 6)
        return x + jnp.einsum("bd,efd->bef", y, experts(4, 6, 6)).sum(1)


class BlindNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        for i in (2, 9, 4, 0, 7):
            x = BlindLinen(f"m{i} n{9 - i} o{i} p{9 - i} q{i}", name=f"part{i}")(x)
        return x


def test_names_that_say_nothing_are_made_up_for_by_a_run_of_both_sides():
    """Bare arrays under meaningless names and numbers, square, in unlike layouts."""
    torch.manual_seed(0)
    blocks = [BlindTorch(f"x{i} y{i * 7 % 5} z{i} u{i * 3 % 5} v{4 - i}") for i in range(5)]
    inputs = [np.random.default_rng(0).normal(size=(3, 6))]
    theirs, ours = torch_model(nn.Sequential(*blocks)), jax_model(BlindNet(), inputs)
    fed = Inputs(inputs, {})
    found = find_map(
        theirs,
        ours,
        torch_uses=find_uses(torch_program(theirs, theirs.arrays, fed, "float64")),
        jax_uses=find_uses(jax_program(ours, ours.arrays, fed, "float64")),
    )
    found.require_complete()
    arrays = wide(theirs.arrays)
    expected = theirs.call({n: torch.tensor(a) for n, a in arrays.items()},
                           [torch.tensor(inputs[0])], {}).detach()  # fmt: skip
    made = {n: jnp.asarray(a) for n, a in found.to_jax(arrays).items()}
    out = ours.call(made, [jnp.asarray(inputs[0])], {})
    np.testing.assert_allclose(out, expected, rtol=1e-10)


def test_the_values_that_both_sides_compute_settle_which_layer_is_which():
    """Names say nothing, sizes neither, and the order of use says the wrong thing."""
    torch.manual_seed(0)

    def forward(m, x):
        first = m.red(x)
        return first + torch.tanh(m.blue(x)) + m.blue(x)

    net = Torch(forward, red=nn.Linear(4, 4), blue=nn.Linear(4, 4))

    def run(tree, x):
        a = x @ tree["cold"]["m"].T + tree["cold"]["b"]
        return jnp.tanh(a) + a + (x @ tree["hot"]["m"].T + tree["hot"]["b"])

    tree = {name: {"m": np.ones((4, 4)), "b": np.ones(4)} for name in ("hot", "cold")}
    theirs, ours = torch_model(net), jax_model((run, tree))
    arrays, fed = wide(theirs.arrays), Inputs([np.random.default_rng(0).normal(size=(3, 4))], {})
    torch_run = torch_program(theirs, arrays, fed, "float64")
    drawn = {n: np.random.default_rng(1).normal(size=a.shape) for n, a in ours.arrays.items()}
    jax_uses = find_uses(jax_program(ours, drawn, fed, "float64"))
    first = find_map(theirs, ours, torch_uses=find_uses(torch_run), jax_uses=jax_uses)
    jax_run = jax_program(ours, first.to_jax(arrays), fed, "float64")
    settled = settle(first, arrays, torch_run, jax_run)
    made = {entry.jax: str(entry.to_jax) for entry in settled.entries}
    assert {entry.jax: str(entry.to_jax) for entry in first.entries} != made
    assert made == {
        "cold/b": "blue.bias",
        "cold/m": "blue.weight",
        "hot/b": "red.bias",
        "hot/m": "red.weight",
    }
    assert settle(settled, arrays, torch_run, jax_program(ours, settled.to_jax(arrays), fed,
                  "float64")) is settled  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1])
def test_what_a_function_cuts_up_is_matched_part_by_part(axis):
    """One array of three layers, in either order of axes, under a name that says nothing."""
    torch.manual_seed(0)
    red, blue, green = (nn.Linear(4, size, bias=False) for size in (3, 5, 5))

    def forward(m, x):
        return m.green(torch.tanh(x)) * m.blue(x) + m.red(x).sum(-1, keepdim=True)

    def run(tree, x):
        parts = jnp.split(tree["xkcd"], [5, 8], axis)
        second, first, third = parts if axis else [part.T for part in parts]
        return (jnp.tanh(x) @ third) * (x @ second) + (x @ first).sum(-1, keepdims=True)

    tree = {"xkcd": np.ones((4, 13) if axis else (13, 4))}
    x = np.random.default_rng(0).normal(size=(6, 4))
    net = Torch(forward, red=red, blue=blue, green=green)
    found = parity.compare(net, (run, tree), inputs=[x], weights="torch")
    assert found.equal
    assert found.weight_map is not None
    step = " permuted 1,0" if axis else ""
    parts = ", ".join(f"{name}.weight{step}" for name in ("blue", "red", "green"))
    assert [str(entry) for entry in found.weight_map.entries] == [f"xkcd = joined {axis} ({parts})"]


def test_a_stack_of_layers_is_matched_layer_by_layer():
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(m, x):
        for layer in m.layers:
            x = torch.tanh(layer(x))
        return x

    def run(tree, x):
        for i in range(3):
            x = jnp.tanh(x @ tree["vwx"][i] + tree["zyx"][i])
        return x

    tree = {"vwx": np.ones((3, 4, 4)), "zyx": np.ones((3, 4))}
    x = np.random.default_rng(0).normal(size=(6, 4))
    found = parity.compare(Torch(forward, layers=layers), (run, tree), inputs=[x], weights="torch")
    assert found.equal
