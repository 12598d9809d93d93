"""The update rule: clipping, Adam, decay; by hand, against the libraries' own, and twin to twin."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import flax_transformer.optim as flax_optim
import torch_reference
import torch_reference.optim as torch_optim
from flax_transformer.models import build_model
from flax_transformer.training import parameter_template
from parity.hostile import hostile_config
from transformer_spec import naming
from transformer_spec.presets import PRESETS

BASE = replace(PRESETS["sort"].train, weight_decay=0.0, clip_norm=None)
SPANNING = np.array([1e-8, -1e-5, 1e-3, -1.0, 3.0])


class Both:
    """One vector under both optimizers. Its name decides whether it is decayed."""

    def __init__(self, config, start, module="up_proj"):
        self.config = config
        self.params = {module: {"kernel": jnp.asarray(start)[None]}}
        self.optimizer = flax_optim.make_optimizer(config)
        self.state = self.optimizer.init(self.params)
        self.torch = torch.nn.Module()
        self.torch.add_module(module, torch.nn.Module())
        self.weight = torch.nn.Parameter(torch.tensor(start)[:, None])
        getattr(self.torch, module).weight = self.weight
        self.torch_optimizer = torch_optim.make_optimizer(self.torch, config)
        self.module = module

    def step(self, grad, lr):
        grads = {self.module: {"kernel": jnp.asarray(grad)[None]}}
        updates, self.state = self.optimizer.update(grads, self.state, self.params)
        self.params = flax_optim.apply_updates(self.params, updates, lr)
        self.weight.grad = torch.tensor(grad)[:, None]
        if self.config.clip_norm is not None:
            grads = [self.weight.grad]
            norm = torch_optim.global_norm(grads)
            torch_optim.clip_by_global_norm(grads, norm, self.config.clip_norm)
        torch_optim.apply_updates(self.torch_optimizer, lr)
        return self.values()

    def values(self):
        ours = np.asarray(self.params[self.module]["kernel"])[0]
        return ours, self.weight.detach().numpy()[:, 0]


def test_first_update_by_hand(float64):
    """After bias correction m = g, v = g^2: u = g / (|g| + eps), eps outside the root."""
    config = replace(BASE, eps=1e-3)
    found = Both(config, np.zeros(5)).step(SPANNING, 0.1)
    for values in found:
        np.testing.assert_allclose(values, -0.1 * SPANNING / (np.abs(SPANNING) + 1e-3), rtol=1e-12)


def test_decay_is_decoupled(float64):
    """With a zero gradient the step is pure decay, whatever the second moment is."""
    config = replace(BASE, weight_decay=0.3)
    for values in Both(config, np.full(5, 2.0)).step(np.zeros(5), 0.1):
        np.testing.assert_allclose(values, 2.0 * (1 - 0.1 * 0.3), rtol=1e-15)


@pytest.mark.parametrize("changes", [
    {},
    {"beta1": 0.8, "beta2": 0.95, "eps": 1e-9},
    {"weight_decay": 0.2},
    {"clip_norm": 0.5},
    {"clip_norm": 0.5, "weight_decay": 0.2},
    {"clip_norm": 100.0},
], ids=str)  # fmt: skip
def test_fifty_updates_agree(float64, changes):
    both = Both(replace(BASE, **changes), np.linspace(-1, 1, 5))
    rng = np.random.default_rng(0)
    for n in range(1, 51):
        ours, theirs = both.step(SPANNING * rng.normal(size=5), 1e-2 * n)
        assert np.linalg.norm(ours - theirs) <= 1e-13 * np.linalg.norm(theirs)
    assert np.linalg.norm(ours - np.linspace(-1, 1, 5)) > 0.1


def test_it_is_optax_adamw(float64):
    config = replace(BASE, weight_decay=0.2)
    both = Both(config, np.linspace(-1, 1, 5))
    oracle = optax.adamw(0.01, b1=config.beta1, b2=config.beta2, eps=config.eps, weight_decay=0.2)
    params = jnp.linspace(-1, 1, 5)
    state = oracle.init(params)
    rng = np.random.default_rng(0)
    for _ in range(10):
        grad = rng.normal(size=5)
        ours, _ = both.step(grad, 0.01)
        updates, state = oracle.update(jnp.asarray(grad), state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(ours, params, rtol=1e-13)


class TestClipping:
    """Global norm clipping of (3, 4), norm 5, by hand: exact, with no epsilon in the quotient."""

    @pytest.mark.parametrize(
        ("bound", "expected"),
        [(1.0, [0.6, 0.8]), (0.01, [0.006, 0.008]), (5.0, [3.0, 4.0]), (7.0, [3.0, 4.0])],
    )
    def test_by_hand(self, float64, bound, expected):
        grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
        ours, _ = optax.clip_by_global_norm(bound).update(grads, optax.EmptyState())
        theirs = [
            torch.tensor([3.0], dtype=torch.float64),
            torch.tensor([4.0], dtype=torch.float64),
        ]
        torch_optim.clip_by_global_norm(theirs, torch_optim.global_norm(theirs), bound)
        np.testing.assert_allclose([float(ours["a"][0]), float(ours["b"][0])], expected, rtol=1e-15)
        np.testing.assert_allclose([float(t) for t in theirs], expected, rtol=1e-15)

    def test_zero_gradients_stay_zero(self):
        theirs = [torch.zeros(3)]
        torch_optim.clip_by_global_norm(theirs, torch_optim.global_norm(theirs), 1.0)
        assert not theirs[0].any()


@pytest.mark.parametrize("decay_all", [False, True])
def test_decay_masks_are_equal_and_skip_norms_biases_and_embeddings(decay_all):
    config = hostile_config(arch="encoder_decoder", num_decoder_layers=2, head_bias=True)
    tree = flax_optim.decay_mask(parameter_template(build_model(config)), decay_all)
    ours = {naming.dotted(path): value for path, value in naming.walk(tree)}
    theirs = torch_optim.decay_mask(torch_reference.build_model(config), decay_all)
    assert ours == theirs
    decayed = {name for name, value in ours.items() if value}
    if decay_all:
        assert decayed == set(ours)
    else:
        leaves = {name.split(".")[-2] for name in decayed}
        projections = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "lm_head"}
        assert leaves == projections
        assert not any(name.endswith("bias") for name in decayed)


def test_undecayed_parameters_do_not_move_without_gradient(float64):
    for module in ("attn_norm", "embed"):
        for values in Both(replace(BASE, weight_decay=0.3), np.full(5, 2.0), module).step(
            np.zeros(5), 0.1
        ):
            np.testing.assert_array_equal(values, 2.0)


def test_jax_is_on_64_bits_here(float64):
    assert jnp.asarray(SPANNING).dtype == jnp.float64
    assert jax.config.jax_enable_x64
