"""The update rule: clipping, Adam, decay; by hand, against the libraries' own, and twin to twin."""

import inspect
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
from transformer_spec import naming
from transformer_spec.presets import PRESETS
from verification.twins.hostile import hostile_config

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


class Strict:
    """A module whose functions have no defaults: an argument that is left out is an error."""

    def __init__(self, module):
        self.module, self.called = module, set()

    def __getattr__(self, name):
        found = getattr(self.module, name)
        if inspect.ismodule(found):
            child = Strict(found)
            child.called = self.called
            return child
        return self.without_defaults(name, found) if callable(found) else found

    def without_defaults(self, name, function):
        signature = inspect.signature(function)

        def call(*args, **kwargs):
            self.called.add(name)
            given = signature.bind(*args, **kwargs).arguments
            left = [n for n, p in signature.parameters.items() if p.default is not p.empty]
            assert not set(left) - set(given), (
                f"{name}: left to a default: {set(left) - set(given)}"
            )
            return function(*args, **kwargs)

        return call


SETTINGS = replace(BASE, weight_decay=0.2, clip_norm=0.5)


def test_no_default_of_optax_decides_anything(monkeypatch):
    monkeypatch.setattr(flax_optim, "optax", strict := Strict(optax))
    flax_optim.make_optimizer(SETTINGS)
    wanted = {"chain", "clip_by_global_norm", "scale_by_adam", "add_decayed_weights"}
    assert strict.called == wanted


def test_no_default_of_torch_decides_anything(monkeypatch):
    monkeypatch.setattr(torch_optim, "torch", strict := Strict(torch))
    torch_optim.make_optimizer(torch.nn.ModuleDict({"up_proj": torch.nn.Linear(2, 3)}), SETTINGS)
    torch_optim.global_norm([torch.ones(2)])
    assert strict.called == {"AdamW", "get_total_norm"}


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        (optax, "scale_by_adam", {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0}),
        (torch.optim, "AdamW", {"params": [torch.zeros(1)], "lr": 0.0, "fused": True}),
    ],
)
def test_a_default_that_decides_is_told(module, name, arguments):
    with pytest.raises(AssertionError, match=f"{name}: left to a default: .*(nesterov|amsgrad)"):
        getattr(Strict(module), name)(**arguments)


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
