"""The same seed, the same run: no weights are copied, and dropout is on."""

from dataclasses import replace
from typing import get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from flax_transformer import training as flax_training
from flax_transformer.models import build_model
from parity.judge.errors import difference
from parity.observe.weights import weights_to_torch
from parity_tests.processes import run
from parity_tests.training.test_training import small
from torch_reference import build_model as build_torch
from torch_reference import random
from torch_reference import training as torch_training
from torch_reference.dropout import set_dropout_keys
from transformer_spec import naming, streams
from transformer_spec.initializers import Scheme
from verification.twins.hostile import hostile_config, tokens

UPDATES = 30


def trainers(name: str, **changes):
    task, train = small(name, dropout=True, seed=7, **changes)
    both = (flax_training, torch_training)
    return task, [module.Trainer(task.model, train) for module in both]


@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_both_begin_with_the_same_parameters(float64, scheme):
    """Bit for bit; and float32 begins with what float64 does, rounded."""
    config, key = hostile_config(), streams.seed_key(7)
    drawn = {}
    for dtype in ("float32", "float64"):
        tree = flax_training.init_params(build_model(config), scheme, key, dtype)
        twin = build_torch(config).to(getattr(torch, dtype))
        torch_training.init_params(twin, scheme, key)
        drawn[dtype] = {name: np.asarray(p) for name, p in naming.to_named(tree).items()}
        theirs = {name: p.numpy(force=True) for name, p in twin.named_parameters()}
        assert drawn[dtype].keys() == theirs.keys()
        for name, value in drawn[dtype].items():
            assert value.dtype == dtype
            np.testing.assert_array_equal(value, theirs[name], name)
    for name, value in drawn["float32"].items():
        np.testing.assert_array_equal(value, drawn["float64"][name].astype(np.float32), name)


def test_a_model_in_bfloat16_begins_with_float32s_numbers_rounded():
    config, key = hostile_config(), streams.seed_key(7)
    wide, narrow = build_torch(config), build_torch(config).bfloat16()
    for model in (wide, narrow):
        torch_training.init_params(model, "gpt2", key)
    for p, q in zip(wide.parameters(), narrow.parameters(), strict=True):
        assert torch.equal(p.bfloat16(), q)


FLAGS = """
import numpy as np, jax
from dataclasses import replace
import flax_transformer.training, torch_reference.training
from transformer_spec import PRESETS
from transformer_training.tasks import make_task

assert not jax.config.jax_threefry_partitionable
assert str(jax.random.key(0).dtype) == "key<rbg>"
train = replace(PRESETS["char-gpt"].train, seed=7, batch_size=2)
task = make_task(replace(PRESETS["char-gpt"].model, num_layers=1, d_model=16, d_ff=24), train)
both = [m.Trainer(task.model, train) for m in (flax_transformer.training, torch_reference.training)]
ours, theirs = (trainer.named_state() for trainer in both)
assert (ours.dropout_key == theirs.dropout_key).all()
assert all((p == theirs.params[name]).all() for name, p in ours.params.items())
losses = [float(trainer.train(task.train_batch(1), 1e-3)["loss"]) for trainer in both]
assert abs(losses[0] - losses[1]) < 1e-5 * losses[0], losses
print("the same")
"""


def test_no_flag_of_jax_decides_what_is_drawn():
    """Other generators, other counters: jax's own streams would be others under either."""
    env = {"JAX_THREEFRY_PARTITIONABLE": "0", "JAX_DEFAULT_PRNG_IMPL": "rbg"}
    done = run("-c", FLAGS, env=env)
    assert "the same" in done.stdout, done.stderr


@pytest.mark.parametrize("name", [pytest.param("sort", marks=pytest.mark.slow), "char-gpt"])
def test_both_take_the_same_steps(float64, compiled_as_users_do, name):
    task, (flax, twin) = trainers(name)
    losses = []
    for update in range(1, UPDATES + 1):
        batch = task.train_batch(update)
        ours, theirs = (float(t.train(batch, 1e-3)["loss"]) for t in (flax, twin))
        assert abs(ours - theirs) <= 1e-10 * abs(theirs), update
        losses.append(ours)
    assert losses[-1] < 0.95 * losses[0]


ARCHITECTURES = {
    "decoder": {},
    "encoder_decoder": {"arch": "encoder_decoder", "num_decoder_layers": 2},
}


@pytest.mark.parametrize(
    "arch", ["decoder", pytest.param("encoder_decoder", marks=pytest.mark.slow)]
)
def test_every_dropout_drops_the_same(float64, arch):
    """Rates differ from site to site: two that swapped their streams would show."""
    rates = {"embed": 0.1, "attn": 0.3, "attn_out": 0.2, "ffn_hidden": 0.35, "ffn_out": 0.15}
    config = hostile_config(
        **ARCHITECTURES[arch], **{f"{n}_dropout": rate for n, rate in rates.items()}
    )
    ids = tokens(23, 3, 7)
    names = ("source", "target") if arch == "encoder_decoder" else ("tokens",)
    model, twin = build_model(config), build_torch(config).double().train()
    inputs = {name: jnp.asarray(ids) for name in names}
    params = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float64), model.init(jax.random.key(0), **inputs)["params"]
    )
    weights_to_torch(params, twin)
    rngs = {"dropout": jax.random.key(3)}
    expected = model.apply({"params": params}, **inputs, deterministic=False, rngs=rngs)
    set_dropout_keys(twin, random.key(3))
    found = twin(**{name: torch.tensor(ids) for name in names}).detach()
    assert difference("output", found.numpy(), np.asarray(expected)).error <= 1e-12
    at_rest = model.apply({"params": params}, **inputs)
    assert difference("output", np.asarray(at_rest), np.asarray(expected)).error > 0.1


class Drawing(nn.Module):
    def __call__(self):
        return [self.make_rng("dropout") for _ in range(2)]


class Outer(nn.Module):
    def setup(self):
        self.layers = [Drawing() for _ in range(12)]

    def __call__(self):
        return [layer() for layer in self.layers]


def test_linen_derives_keys_from_path_and_count_as_it_did():
    """Fails if a release of Flax changes it: then torch's streams are no longer Linen's."""
    made = Outer().apply({}, rngs={"dropout": jax.random.key(5)})
    for i, calls in enumerate(made):
        for count, key in enumerate(calls, start=1):
            number = streams.number(*naming.linen_path(f"layers.{i}"), count)
            expected = random.fold_in(random.key(5), number).numpy().view(np.uint32)
            np.testing.assert_array_equal(jax.random.key_data(key), expected)


@pytest.mark.parametrize(
    "name", ["embed_dropout", "decoder.layers.10.attn.weights_dropout", "layers.0"]
)
def test_a_linen_path_is_the_inverse_of_a_torch_name(name):
    assert naming.module_name(naming.linen_path(name)) == name


def test_a_torch_module_by_itself_draws_from_torchs_generator():
    twin = build_torch(replace(hostile_config(), embed_dropout=0.5)).train()
    ids = torch.tensor(tokens(23, 2, 5))
    torch.manual_seed(1)
    first, second = twin(ids), twin(ids)
    torch.manual_seed(1)
    assert torch.equal(twin(ids), first)
    assert not torch.equal(first, second)
