"""What a user may hand over becomes named arrays and a call, whatever library it is written in."""

import copy

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from parity.models.functions import framework_named
from parity.models.jax_models import jax_model
from parity.models.model import JaxModel, TorchModel
from parity.models.torch_models import torch_model
from parity.observe.settings import NotComparableError

X = np.random.default_rng(0).normal(size=(4, 5))


def torch_out(model: TorchModel, *args: np.ndarray, dtype=torch.float64, **kwargs) -> torch.Tensor:
    tensors = {
        name: torch.tensor(a).to(dtype) if np.issubdtype(a.dtype, np.floating) else torch.tensor(a)
        for name, a in model.arrays.items()
    }
    given = [torch.tensor(a).to(dtype) for a in args]
    return model.call(tensors, given, kwargs).detach()


def jax_out(model: JaxModel, *args: np.ndarray, dtype=jnp.float64, **kwargs) -> jax.Array:
    arrays = {
        name: jnp.asarray(a, dtype) if jnp.issubdtype(a.dtype, jnp.floating) else jnp.asarray(a)
        for name, a in model.arrays.items()
    }
    return model.call(arrays, [jnp.asarray(a, dtype) for a in args], kwargs)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("factor", torch.tensor(3.0), persistent=False)

    def forward(self, x, double=False):
        return self.head(x) * self.factor * (2 if double else 1)


def test_a_torch_module_has_tied_arrays_once_and_every_buffer():
    model = torch_model(Tied(), {"double": True})
    assert list(model.arrays) == ["factor", "embed.weight"]
    assert model.aliases == {"head.weight": "embed.weight"}
    assert model.trainable == {"embed.weight"}
    weight = model.arrays["embed.weight"].T.astype(np.float64)
    # A sum of five products rounds relative to its terms, which may cancel.
    bound = 8 * np.finfo(np.float64).eps * (6 * abs(X) @ abs(weight))
    assert (abs(torch_out(model, X).numpy() - 6 * X @ weight) <= bound).all()


def test_a_call_takes_any_dtype():
    model = torch_model(nn.LSTM(5, 3, batch_first=True))
    tensors = {name: torch.tensor(a).bfloat16() for name, a in model.arrays.items()}
    assert model.call(tensors, [torch.tensor(X[None]).bfloat16()], {})[0].dtype == torch.bfloat16
    flax = jax_model(linen.Dense(3), [X])
    assert jax_out(flax, X, dtype=jnp.bfloat16).dtype == jnp.bfloat16


def test_a_torch_call_changes_neither_the_module_nor_the_given_tensors():
    module = nn.Sequential(nn.BatchNorm1d(5), nn.LSTM(5, 5)).train()
    before = copy.deepcopy(module.state_dict())
    model = torch_model(module)
    tensors = {
        name: torch.tensor(a).double() if a.ndim else torch.tensor(a)
        for name, a in model.arrays.items()
    }
    given = {name: tensor.clone() for name, tensor in tensors.items()}
    model.call(tensors, [torch.tensor(X)], {})
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert torch.equal(tensors[name], given[name]), name
    out = module(torch.tensor(X).float())[0]
    assert out.dtype == torch.float32


def test_frozen_parameters_have_no_gradients_unless_all_are_frozen():
    module = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    module[0].requires_grad_(False)
    assert torch_model(module).trainable == {"1.weight", "1.bias"}
    assert len(torch_model(module.requires_grad_(False)).trainable) == 4


def test_a_torch_function_takes_its_tensors_as_they_were_nested():
    tree = {"layers": [{"w": torch.randn(5, 3)}, {"w": torch.randn(3, 2)}]}

    def function(tree, x):
        for layer in tree["layers"]:
            x = x @ layer["w"]
        return x

    model = torch_model((function, tree))
    assert list(model.arrays) == ["layers.0.w", "layers.1.w"]
    expected = X @ tree["layers"][0]["w"].double().numpy() @ tree["layers"][1]["w"].double().numpy()
    np.testing.assert_allclose(torch_out(model, X), expected, rtol=1e-12)
    assert torch_model(torch.relu).arrays == {}


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (3, "torch: a torch module, or (function, dictionary of tensors) is needed, this is int"),
        ((len, {"a": 3}), "this holds int"),
        (nn.LazyLinear(3), "weight has no shape yet; call the module once first"),
        (nn.Linear(2, 3, device="meta"), "weight is on the meta device"),
    ],
)
def test_what_is_no_torch_model_is_refused(built, said):
    with pytest.raises(NotComparableError) as refused:
        torch_model(built)
    assert said in str(refused.value)


class Flax(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        x = linen.Dropout(0.5, name="drop")(linen.Dense(3, name="out")(x), deterministic=not train)
        return linen.BatchNorm(use_running_average=not train, name="bn")(x)


def flax_variables(x=X):
    return Flax().init(jax.random.key(1), x, train=False)


ARRAYS = {"params/out/kernel", "params/out/bias", "params/bn/scale", "params/bn/bias"}
STATISTICS = {"batch_stats/bn/mean", "batch_stats/bn/var"}


def test_a_linen_module_alone_is_initialized():
    model = jax_model(Flax(), [X], {}, {"train": False})
    assert set(model.arrays) == ARRAYS | STATISTICS
    assert model.trainable == ARRAYS
    assert not model.loaded
    assert list(model.kinds.values()) == 2 * ["linen.Dense"] + 4 * ["linen.BatchNorm"]
    assert jax_out(model, X).dtype == jnp.float64


@pytest.mark.parametrize("collections", ["all", "params only", "below params"])
def test_linen_variables_are_taken_and_completed(collections):
    variables = flax_variables()
    given = {"all": variables, "params only": {"params": variables["params"]}}
    model = jax_model(
        (Flax(), given.get(collections, variables["params"])), [X], {}, {"train": False}
    )
    assert model.loaded
    assert set(model.arrays) == ARRAYS | STATISTICS
    np.testing.assert_array_equal(
        model.arrays["params/out/kernel"], variables["params"]["out"]["kernel"]
    )
    np.testing.assert_allclose(
        jax_out(model, X), Flax().apply(variables, X, train=False), rtol=1e-5, atol=1e-6
    )


def test_a_bound_linen_module_brings_its_variables():
    variables = flax_variables()
    model = jax_model(Flax().bind(variables), [X], {}, {"train": False})
    assert model.loaded
    np.testing.assert_array_equal(
        model.arrays["params/out/kernel"], variables["params"]["out"]["kernel"]
    )


def test_partitioned_parameters_have_the_names_of_plain_ones():
    init = linen.with_partitioning(linen.initializers.normal(), ("a", "b"))
    model = jax_model(linen.Dense(3, kernel_init=init), [X])
    assert set(model.arrays) == {"params/kernel", "params/bias"}
    assert jax_out(model, X).shape == (4, 3)


def test_a_linen_module_that_draws_needs_its_key_given():
    model = jax_model((Flax(), flax_variables()), [X], {}, {"train": True})
    with pytest.raises(NotComparableError, match=r"(?s)does not run: InvalidRngError.*test_models"):
        jax_out(model, X)
    rngs = {"dropout": jax.random.key(0)}
    model = jax_model((Flax(), flax_variables()), [X], {}, {"train": True, "rngs": rngs})
    assert jax_out(model, X).shape == (4, 3)


class Nnx(nnx.Module):
    def __init__(self, *, rngs):
        self.layers = nnx.List([nnx.Linear(5, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)])
        self.bn = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)
        self.drop = nnx.Dropout(0.5, deterministic=True, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.drop(self.bn(x))


@pytest.mark.parametrize("form", ["module", "split", "split by kind"])
def test_an_nnx_module_whole_or_split(form):
    module = Nnx(rngs=nnx.Rngs(0))
    built = {
        "module": module,
        "split": nnx.split(module),
        "split by kind": nnx.split(module, nnx.Param, ...),
    }[form]
    model = jax_model(built)
    learned = {f"layers/{i}/{leaf}" for i in (0, 1) for leaf in ("kernel", "bias")}
    assert model.trainable == learned | {"bn/scale", "bn/bias"}
    assert set(model.arrays) == model.trainable | {"bn/mean", "bn/var"}
    assert model.kinds["layers/1/kernel"] == "nnx.Linear"
    assert model.kinds["bn/mean"] == "nnx.BatchNorm"
    np.testing.assert_allclose(jax_out(model, X), module(jnp.asarray(X)), rtol=1e-5, atol=1e-6)
    doubled = dict(model.arrays, **{"bn/bias": model.arrays["bn/bias"] + 1})
    moved = model.call(doubled, [jnp.asarray(X)], {})
    np.testing.assert_allclose(moved, module(jnp.asarray(X)) + 1, rtol=1e-5, atol=1e-6)


def test_an_nnx_module_bridged_into_linen():
    model = jax_model(nnx.bridge.ToLinen(Nnx), [X])
    assert not model.loaded
    assert {"params/bn/scale", "batch_stats/bn/mean", "params/layers/0/kernel"} <= set(model.arrays)
    assert jax_out(model, X).shape == (4, 3)


def test_an_equinox_module_is_a_pytree_that_is_called():
    eqx = pytest.importorskip("equinox", reason="equinox is not installed")
    net = eqx.nn.MLP(5, 3, 4, 1, key=jax.random.key(0))
    model = jax_model(net, [X[0]])
    assert set(model.arrays) == {
        f"layers/{i}/{leaf}" for i in (0, 1) for leaf in ("weight", "bias")
    }
    assert set(model.kinds.values()) == {"equinox.Linear"}
    np.testing.assert_allclose(jax_out(model, X[0]), net(jnp.asarray(X[0])), rtol=1e-5)
    batched = jax_model((lambda net, x: jax.vmap(net)(x), net), [X])
    assert batched.arrays.keys() == model.arrays.keys()
    assert jax_out(batched, X).shape == (4, 3)


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_haiku_functions_with_and_without_parameters(keyless, given):
    hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")
    net = hk.transform(lambda x: hk.nets.MLP([4, 3])(x))
    net = hk.without_apply_rng(net) if keyless else net
    params = net.init(jax.random.key(0), X)
    model = jax_model((net, params) if given else net, [X])
    names = {f"params/mlp/~/linear_{i}/{leaf}" for i in (0, 1) for leaf in "wb"}
    assert set(model.arrays) == model.trainable == names
    assert model.loaded == given
    assert model.kinds["params/mlp/~/linear_0/w"] == "haiku.Linear"
    held = {module: {leaf: model.arrays[f"params/{module}/{leaf}"] for leaf in leaves}
            for module, leaves in params.items()}  # fmt: skip
    out = net.apply(held, *([] if keyless else [None]), X)
    np.testing.assert_allclose(jax_out(model, X), out, rtol=1e-5, atol=1e-6)


def test_haiku_state_is_kept_and_initialized_in_training():
    hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")
    net = hk.transform_with_state(
        lambda x, is_training: hk.BatchNorm(True, True, 0.9)(x, is_training)
    )
    model = jax_model(net, [X], {}, {"is_training": False})
    assert "state/batch_norm/~/mean_ema/average" in model.arrays
    assert model.trainable == {"params/batch_norm/scale", "params/batch_norm/offset"}
    assert jax_out(model, X).shape == X.shape


def test_a_jax_function_with_its_arrays_or_alone():
    tree = {"layers": [(np.ones((5, 3)), "relu"), (np.ones((3, 2)), None)], "n": np.arange(3)}
    model = jax_model((lambda t, x: x @ t["layers"][0][0] @ t["layers"][1][0], tree), [X])
    assert set(model.arrays) == {"layers/0/0", "layers/1/0", "n"}
    assert model.trainable == {"layers/0/0", "layers/1/0"}
    assert jax_out(model, X).shape == (4, 2)
    assert jax_out(jax_model(jax.nn.relu), X).min() == 0


@pytest.mark.parametrize("built", [3, (3, {}), None, (jax.nn.relu, 1, 2)])
def test_what_is_no_jax_model_is_refused(built):
    with pytest.raises(NotComparableError, match=r"jax: a Linen module.*is needed; this is"):
        jax_model(built, [X])


def test_what_a_users_code_raises_is_one_line_that_says_where():
    def fails(*_):
        raise ValueError("one\ntwo")

    with pytest.raises(NotComparableError) as raised:
        jax_out(jax_model((fails, {"w": X})), X)
    assert str(raised.value).startswith(
        "the JAX side does not run: ValueError: one (test_models.py:"
    )
    with pytest.raises(NotComparableError, match="the torch side does not run: ValueError: one"):
        torch_out(torch_model((fails, {"w": torch.ones(3)})))
    with pytest.raises(NotComparableError, match="the JAX side does not initialize: "):
        jax_model(linen.Dense(3), [])


def test_a_plain_function_tells_its_framework_where_its_code_names_it():
    assert framework_named(lambda x: torch.relu(x)) == "torch"
    assert framework_named(lambda x: jnp.maximum(x, 0)) == "jax"
    assert framework_named(lambda x: x * 2) is None
    assert framework_named(nn.ReLU()) is None
