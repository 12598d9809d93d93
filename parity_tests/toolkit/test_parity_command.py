"""`python -m parity` and `parity.compare` as a user has them: a pair of their own, and mistakes."""

import importlib
import json
import re
import textwrap

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import parity
from parity import comparison, loading
from parity.cli import main
from parity.observe import settings
from parity_tests.processes import run

PAIR = """
import flax.linen as nn
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

WIDTH, HEADS = 12, 3


class TorchBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = torch.nn.Linear(WIDTH, 20), torch.nn.Linear(20, WIDTH)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (
            f(h).reshape(*x.shape[:2], HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(context.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(x)))


class FlaxBlock(nn.Module):
    eps: float = 1e-5
    swapped: bool = False
    scale: float = (WIDTH // HEADS) ** -0.5
    approximate: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm(epsilon=self.eps, name="norm")(x)
        q, k, v = (nn.Dense(WIDTH, name=n)(h).reshape(*x.shape[:2], HEADS, -1) for n in "qkv")
        if self.swapped:
            q, k = k, q
        scores = jnp.einsum("btnh,bsnh->bnts", q, k) * self.scale
        causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        wide = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
        weights = jax.nn.softmax(jnp.where(causal, wide, -jnp.inf), -1).astype(x.dtype)
        context = jnp.einsum("bnts,bsnh->btnh", weights, v).reshape(x.shape)
        x = x + nn.Dense(WIDTH, name="out")(context)
        up = nn.Dense(20)
        down = nn.Dense(WIDTH)
        return x + down(nn.gelu(up(x), approximate=self.approximate))


def build_torch():
    torch.manual_seed(0)
    model = TorchBlock().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.4)
    return model


def right():
    return FlaxBlock()


def wrong():
    return FlaxBlock(eps=1e-6, scale=1.0, approximate=True)


def another_epsilon():
    model = build_torch()
    model.norm.eps = 1e-3
    return model


def deeper():
    return torch.nn.Sequential(build_torch(), torch.nn.Linear(WIDTH, WIDTH))


def poisoned():
    model = build_torch()
    model.up.weight.data[0, 0] = float("nan")
    return model


def training():
    return torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(WIDTH, WIDTH))


def dense():
    return nn.Sequential([nn.Dropout(0.5, deterministic=True), nn.Dense(WIDTH)])


def wider():
    return nn.Sequential([nn.Dense(31), nn.Dense(WIDTH)])


def number():
    return 3


def table():
    return torch.nn.Embedding(7, 4)


def flax_table():
    return nn.Embed(7, 4)


def fails():
    raise RuntimeError("no checkpoint here")
"""
RENAMES = ["--rename", "Dense_0=up", "--rename", "Dense_1=down"]


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    path = tmp_path_factory.mktemp("pair") / "mine.py"
    path.write_text(textwrap.dedent(PAIR))
    return str(path)


def compare(mine: str, torch_name: str, flax_name: str, *rest: str, inputs: str = "2x5x12") -> int:
    places = f"{mine}:{torch_name}", f"{mine}:{flax_name}"
    return main(["compare", *places, "--inputs", inputs, *rest])


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_an_equal_pair_is_called_equal(float64, mine, capsys, dtype):
    assert compare(mine, "build_torch", "right", *RENAMES, "--dtype", dtype) == 0
    assert capsys.readouterr().out.startswith(f"EQUAL in {dtype}")


def test_three_mistakes_are_found_and_named_by_one_command(float64, mine, capsys):
    assert compare(mine, "build_torch", "wrong", *RENAMES) == 1
    said = capsys.readouterr().out
    assert "epsilon 1e-06, where the reference has epsilon 1e-05" in said
    assert "no multiplication by" in said
    assert "gelu by tanh, where the reference has gelu by erf" in said
    assert "return x + down(nn.gelu(up(x), approximate=self.approximate))" in said
    assert said.startswith("DIFFERENT in float64")
    assert len(said.splitlines()) <= 31


def test_the_order_of_the_two_models_does_not_matter(float64, mine, capsys):
    assert compare(mine, "right", "build_torch") == 0
    assert capsys.readouterr().out.startswith("EQUAL")


def test_weights_are_matched_without_renamings(float64, mine, capsys):
    assert compare(mine, "build_torch", "right") == 0
    assert capsys.readouterr().out.startswith("EQUAL")


def test_a_map_of_the_weights_is_written_and_taken_back(float64, mine, capsys, tmp_path):
    path = tmp_path / "map.txt"
    assert compare(mine, "build_torch", "right", "--save-map", str(path)) == 0
    text = path.read_text()
    assert "params/up/kernel" not in text
    assert "params/Dense_0/kernel = up.weight permuted 1,0" in text
    assert compare(mine, "build_torch", "right", "--map", str(path)) == 0
    path.write_text(text.replace("= up.bias", "= down.bias"))
    assert compare(mine, "build_torch", "right", "--map", str(path)) == 2
    assert "line" in capsys.readouterr().err


def test_a_layer_of_one_side_alone_is_a_difference(float64, mine, capsys):
    assert compare(mine, "deeper", "right") == 1
    said = capsys.readouterr().out
    assert said.startswith("DIFFERENT")
    assert "1.weight" in said


def test_two_models_of_one_framework_are_compared(float64, mine, capsys):
    assert compare(mine, "build_torch", "build_torch") == 0
    assert compare(mine, "dense", "dense", inputs="4x12") == 0
    assert compare(mine, "build_torch", "another_epsilon") == 1
    said = capsys.readouterr().out
    assert "first being the reference" in said
    assert re.search(r"^   second *mine.py:\d+ in norm", said, re.MULTILINE)
    assert "epsilon 0.001, where the reference has epsilon 1e-05" in said


def test_a_map_that_cannot_be_written_is_refused_before_any_work(mine, capsys, tmp_path):
    path = tmp_path / "nowhere" / "map.txt"
    assert compare(mine, "build_torch", "right", "--save-map", str(path)) == 2
    assert f"--save-map {path}: expected a file in a folder that exists" in capsys.readouterr().err


def test_json_holds_every_result(float64, mine, capsys):
    assert compare(mine, "build_torch", "right", *RENAMES, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["verdict"] == "equal"
    assert {"output", "up.weight", "0"} <= {result["name"] for result in found["compared"]}
    assert all(result["equal"] for result in found["compared"])


PAIRED = "compare {mine}:build_torch {mine}:right --inputs 2x5x12"
NAMED = "--rename Dense_0=up --rename Dense_1=down"
MISTAKES = {
    "no file": ("compare gone.py:f gone.py:g --inputs 2x3", "gone.py: no such file"),
    "no function": (
        "compare {mine}:nothing {mine}:right --inputs 2x5x12",
        "no function nothing there; did you mean",
    ),
    "a function that fails": (
        "compare {mine}:build_torch {mine}:fails --inputs 2x3",
        "fails: RuntimeError: no checkpoint here",
    ),
    "no module": (
        "compare {mine}:number {mine}:right --inputs 2x3",
        r"\(function, pytree of arrays\) is needed; this is int",
    ),
    "ids outside the table": (
        "compare {mine}:table {mine}:flax_table --inputs 2x30:99",
        "the torch side does not run: IndexError: index out of range",
    ),
    "no inputs": (
        "compare {mine}:build_torch {mine}:right --inputs two",
        "--inputs two: expected 2x5x12",
    ),
    "a wrong rank": (
        f"compare {{mine}}:build_torch {{mine}}:right --inputs 5x12 {NAMED}",
        "does not initialize: TypeError: cannot reshape",
    ),
    "weights without a counterpart": (
        "compare {mine}:build_torch {mine}:wider --inputs 2x5x12",
        "weights left without a counterpart: ",
    ),
    "inputs without elements": (
        "compare {mine}:build_torch {mine}:right --inputs 0x5x12",
        "has no elements, so nothing is compared",
    ),
    "NaN": (
        f"compare {{mine}}:poisoned {{mine}}:right --inputs 2x5x12 {NAMED}",
        "up.weight holds NaN or infinities",
    ),
    "a model in training": (
        "compare {mine}:training {mine}:dense --inputs 2x12",
        r"drops values: it is training; run: module.eval\(\)",
    ),
    "a wrong renaming": (
        f"{PAIRED} --rename Dense_0",
        "--rename Dense_0: expected FLAX_NAME=torch_name",
    ),
    "an unknown dtype": (
        f"{PAIRED} --dtype float8",
        "dtype: 'float8' is not usable; one of float64",
    ),
}
USAGE = {
    "no command": ("", "required: compare"),
    "an unknown command": ("compar a b", "no 'compar'; did you mean compare?"),
    "an unknown flag": (
        "compare a b --inptus 2x3",
        "no such flag; did you mean --inputs?",
    ),
    "an unknown choice": ("compare a b --inputs 2 --weights tor", "'tor'; did you mean torch?"),
    "one word too many": ("compare a b c --inputs 2", "unrecognized arguments: c"),
    "a command that has moved": ("check sort --grads", "python -m verification check"),
    "the curves": ("curves runs/a runs/b", "python -m transformer_training.curves"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(float64, mine, capsys, name):
    line, message = MISTAKES[name]
    assert main(line.format(mine=mine).split()) == 2
    said = capsys.readouterr()
    assert "EQUAL" not in said.out
    assert said.err.count("\n") == 1
    assert re.search(message, said.err), said.err


@pytest.mark.parametrize("name", USAGE)
def test_a_slip_of_the_command_line_is_one_line_and_status_2(capsys, name):
    line, message = USAGE[name]
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said


@pytest.mark.parametrize("module", ["parity", "parity.comparison", "parity.report"])
def test_compare_is_the_function_whatever_is_imported_before(module):
    importlib.import_module(module)
    assert parity.compare is comparison.compare
    assert parity.NotComparableError is settings.NotComparableError


def test_the_package_names_what_it_does_not_have():
    with pytest.raises(AttributeError, match="no attribute 'comparre'"):
        parity.comparre  # noqa: B018


def test_a_session_without_float64_is_refused_with_the_line_that_fixes_it(mine):
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(parity.NotComparableError, match=r'update\("jax_enable_x64", True\)'):
            parity.compare(torch.nn.Linear(2, 2), nn.Dense(2), inputs=[np.ones((3, 2))])
    finally:
        jax.config.update("jax_enable_x64", True)


def test_constant_outputs_are_no_comparison(float64):
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.ones_(layer.bias)
    with pytest.raises(parity.NotComparableError, match="the output is constant"):
        parity.compare(layer, nn.Sequential([nn.Dense(2)]), inputs=[np.ones((3, 2))],
                       renames={"layers_0": ""})  # fmt: skip


def test_loaded_weights_are_compared_as_they_are(float64):
    layer, module = torch.nn.Linear(3, 3), nn.Dense(3)
    kernel = layer.weight.detach().double().numpy()
    variables = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(
        layer.bias.detach().double().numpy())}}  # fmt: skip
    x = np.random.default_rng(0).normal(size=(5, 3))
    found = parity.compare(layer, module, variables, [x], weights="loaded")
    assert not found.equal
    assert [fault.entry.jax for fault in found.copying_faults] == ["params/kernel"]
    assert "transposed" in found.copying_faults[0].text
    crossed = parity.compare(layer, module, inputs=[x])
    assert crossed.equal


def test_a_fault_of_the_tool_is_no_verdict(float64, mine, capsys, monkeypatch):
    def fails(*args, **kwargs):
        raise ValueError("broadcast")

    monkeypatch.setattr(comparison, "pair_outputs", fails)
    assert compare(mine, "build_torch", "right") == 2
    said = capsys.readouterr()
    assert "EQUAL" not in said.out
    assert "a fault of this tool, not of the models: ValueError: broadcast" in said.err
    with pytest.raises(ValueError, match="broadcast"):
        compare(mine, "build_torch", "right", "--traceback")


@pytest.mark.parametrize("framework", ["jax", "flax", "torch"])
def test_a_framework_that_is_not_installed_is_named_with_its_install_line(framework):
    program = (
        f"import sys; sys.modules[{framework!r}] = None; "
        "from parity.cli import main; sys.exit(main(['compare', 'a', 'b', '--inputs', '2']))"
    )
    done = run("-c", program)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{framework} is not installed; run: pip install" in done.stderr


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(f"def build():\n    return {folder!r}\n")
        assert loading.call_target(f"{tmp_path / folder / 'model.py'}:build") == folder


def test_inputs_are_read_from_every_form(tmp_path):
    np.savez(tmp_path / "x.npz", ids=np.arange(3))
    assert list(loading.load_inputs([str(tmp_path / "x.npz")])) == ["ids"]
    ids, x = loading.load_inputs(["2x7:5", "3x4"])
    assert ids.shape == (2, 7)
    assert ids.max() < 5
    assert x.dtype == np.float64
    assert set(loading.load_inputs(["a=2", "b=3x1:9"])) == {"a", "b"}
