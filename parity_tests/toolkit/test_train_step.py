"""A user's own training in torch and in JAX: what differs, and what is said of it."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import parity
from parity.cli import main
from parity.observe import settings
from parity.training.result import TrainingResult

OPTIM = torch.optim
RATE = 1e-3


@pytest.fixture(autouse=True)
def comparable(float64):
    settings.make_comparable()


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"w": rng.normal(size=(5, 7)), "b": rng.normal(size=6)}


def compare_optimizers(make, transformation) -> TrainingResult:
    tensors = {n: torch.tensor(a) for n, a in values().items()}
    arrays = {n: jnp.asarray(a) for n, a in values().items()}
    return parity.train_step((make, tensors), (transformation, arrays))


def texts(result) -> list[str]:
    return [cause.text for finding in result.findings for cause in finding.causes]


def test_the_defaults_of_rmsprop_are_told_apart():
    result = compare_optimizers(
        lambda p: OPTIM.RMSprop(p, RATE, eps=0.01), optax.rmsprop(RATE, eps=0.01)
    )
    assert texts(result) == [
        "epsilon 0.01 inside the root, where the reference has it outside the root",
        "decay of squares (alpha in torch, decay in optax) 0.9, where the reference has 0.99",
    ]
    assert "eps_in_sqrt=False" in str(result)


def test_equal_settings_are_equal():
    rmsprop = optax.rmsprop(RATE, 0.99, eps=0.01, eps_in_sqrt=False)
    assert compare_optimizers(lambda p: OPTIM.RMSprop(p, RATE, eps=0.01), rmsprop).equal


def scaled_by_adam(corrected: bool) -> optax.GradientTransformation:
    """Adam whose first moment may be left uncorrected."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return jnp.zeros([], jnp.int32), zeros, zeros

    def update(updates, state, params=None):
        count, m, v = state[0] + 1, state[1], state[2]
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, updates)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, updates)
        first = 1 - 0.9**count if corrected else 1.0
        root = 1 - 0.999**count

        def moved(m, v):
            return -RATE * m / first / (jnp.sqrt(v / root) + 1e-8)

        return jax.tree.map(moved, m, v), (count, m, v)

    return optax.GradientTransformation(init, update)


def test_a_missing_bias_correction_is_no_other_constant():
    assert compare_optimizers(lambda p: OPTIM.Adam(p, RATE), scaled_by_adam(True)).equal
    found = compare_optimizers(lambda p: OPTIM.Adam(p, RATE), scaled_by_adam(False))
    assert texts(found) == ["the first moment is not bias-corrected; in the reference it is"]


def test_a_step_that_no_member_makes_gets_no_cause():
    def init(params):
        return ()

    def update(updates, state, params=None):
        return jax.tree.map(lambda g: -RATE * jnp.arctan(g * 1e4), updates), state

    strange = optax.GradientTransformation(init, update)
    found = compare_optimizers(lambda p: OPTIM.SGD(p, RATE), strange)
    assert not found.equal
    assert texts(found) == []


def test_decay_of_one_array_alone_is_told():
    def torch_side(p):
        return OPTIM.AdamW(
            [{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.0}], RATE, weight_decay=0.1
        )

    found = compare_optimizers(torch_side, optax.adamw(RATE, weight_decay=0.1))
    (finding,) = found.findings
    assert finding.where == "b"
    assert "(decoupled)" in finding.causes[0].text


def test_clipping_inside_of_the_transformation_is_seen():
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(RATE))
    (text,) = texts(compare_optimizers(lambda p: OPTIM.Adam(p, RATE), clipped))
    assert text.startswith("gradients are clipped by their global norm (limit 1)")


def test_a_schedule_that_skips_its_first_rate_is_told():
    def rate(t):
        return 0.1 * 0.9**t

    def torch_side(p):
        optimizer = OPTIM.SGD(p, 0.1)
        return optimizer, OPTIM.lr_scheduler.ExponentialLR(optimizer, 0.9)

    assert compare_optimizers(torch_side, optax.sgd(rate)).equal
    linear = optax.sgd(lambda t: 0.1 * jnp.maximum(0, 1 - t / 30))

    def torch_linear(p):
        optimizer = OPTIM.SGD(p, 0.1)
        after = OPTIM.lr_scheduler.LambdaLR(optimizer, lambda t: max(0, 1 - (t + 1) / 30))
        return optimizer, after

    (text,) = texts(compare_optimizers(torch_linear, linear))
    assert text == "learning rate of update n is that of update n -1"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def torch_training(clip: float | None = None):
    torch.manual_seed(0)
    net = Net()
    optimizer = OPTIM.AdamW(net.parameters(), 0.01, weight_decay=0.1)

    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]), batch["y"])

    def step(batch):
        optimizer.zero_grad()
        value = loss(net, batch)
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        return value

    return net, optimizer, loss if clip is None else step


def jax_loss(params, batch, scale=1.0):
    x = jnp.tanh(batch["x"] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    logits = x @ params["out"]["kernel"] + params["out"]["bias"]
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
    return scale * each.mean()


def jax_params():
    zeros = jnp.zeros
    return {
        "hidden": {"kernel": zeros((4, 8)), "bias": zeros(8)},
        "out": {"kernel": zeros((8, 3)), "bias": zeros(3)},
    }


def batches():
    rng = np.random.default_rng(3)
    return [{"x": rng.normal(size=(6, 4)), "y": rng.integers(0, 3, 6)} for _ in range(4)]


def test_a_whole_training_is_equal_and_the_users_objects_stay_as_they_are():
    torch_side = torch_training()
    before = {n: p.clone() for n, p in torch_side[0].named_parameters()}
    adamw = optax.adamw(0.01, weight_decay=0.1)
    result = parity.train_step(torch_side, (jax_params(), adamw, jax_loss), batches())
    assert result.equal, result
    assert set(result.compared) == {"loss", "gradients", "updates"}
    for name, parameter in torch_side[0].named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, before[name])
    assert not torch_side[1].state


def test_a_loss_that_is_scaled_is_told_with_the_factor():
    adamw = optax.adamw(0.01, weight_decay=0.1)
    wrong = (jax_params(), adamw, lambda p, b: jax_loss(p, b, 4.0))
    result = parity.train_step(torch_training(), wrong, batches())
    assert texts(result) == ["all gradients are 4 times the reference's"]


def test_a_step_of_the_users_own_runs_as_it_is():
    """A state with an average of the weights on the JAX side; none in torch."""
    adamw = optax.adamw(0.01, weight_decay=0.1)
    state = {"params": jax_params(), "opt_state": adamw.init(jax_params()), "ema": jax_params()}

    @jax.jit
    def step(state, batch):
        value, grads = jax.value_and_grad(jax_loss)(state["params"], batch)
        updates, opt_state = adamw.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        ema = jax.tree.map(lambda a, p: 0.9 * a + 0.1 * p, state["ema"], params)
        return {"params": params, "opt_state": opt_state, "ema": ema}, {"loss": value}

    result = parity.train_step(torch_training(), (state, step), batches())
    (text,) = texts(result)
    assert text == "the candidate keeps an average of the weights, the other does not"


def test_averages_of_other_formulas_are_told_apart():
    from parity.training.averages import explain_averages, identify_average

    rng = np.random.default_rng(5)
    weights = np.cumsum(rng.normal(size=(12, 30)), 0)

    def averaged(start, decays, corrected=None):
        a, kept = start, []
        for t, (p, d) in enumerate(zip(weights[1:], decays, strict=True), 1):
            a = d * a + (1 - d) * p
            kept.append(a if corrected is None else a / (1 - corrected**t))
        return np.stack(kept)

    n = len(weights) - 1
    plain = identify_average(weights, averaged(weights[0], [0.9] * n))
    debiased = identify_average(weights, averaged(0 * weights[0], [0.9] * n, 0.9))
    warm = identify_average(
        weights, averaged(weights[0], [min(0.5, (1 + t) / (10 + t)) for t in range(1, n + 1)])
    )
    noise = identify_average(weights, rng.normal(size=(n, 30)))
    assert plain is not None
    assert debiased is not None
    assert warm is not None
    assert noise is None
    assert explain_averages(plain, plain) == []
    (cause,) = explain_averages(plain, debiased)
    assert "starts at zeros and is divided by 1 - decay**t" in cause.text
    (cause,) = explain_averages(plain, warm)
    assert "min(d, (1 + t) / (10 + t))" in cause.text


LOSS_ROWS = {
    "tokens": (None, lambda e, m: (e * m).sum() / m.sum()),
    "size": ("it divides by all tokens", lambda e, m: (e * m).sum() / m.size),
    "rows": ("mean of the sequences' means", lambda e, m: ((e * m).sum(1) / m.sum(1)).mean()),
    "sum": ("it divides by 1 (a sum)", lambda e, m: (e * m).sum()),
}


@pytest.mark.parametrize(("said", "reduce"), LOSS_ROWS.values(), ids=LOSS_ROWS)
def test_what_a_loss_divides_by_is_read_from_its_gradient(said, reduce):
    rng = np.random.default_rng(0)
    logits, labels = 2 * rng.normal(size=(3, 7, 13)), rng.integers(0, 13, (3, 7))
    mask = np.arange(7) < np.array([[7], [5], [3]])

    def torch_loss(z, y, m):
        return F.cross_entropy(z[m], y[m])

    def jax_side(z, y, m):
        return reduce(optax.softmax_cross_entropy_with_integer_labels(z, y), m)

    result = parity.compare_losses(torch_loss, jax_side, logits, labels, mask)
    assert result.equal == (said is None)
    assert said is None or any(said in text for text in texts(result))


def test_fresh_parameters_cut_at_other_places_are_told():
    std = 60**-0.5 / 0.87962566103423978

    def torch_side(bound: float):
        weight = nn.init.trunc_normal_(torch.empty(40, 60), std=std, a=-bound, b=bound)
        return {"w": weight, "bias": torch.zeros(40)}

    def jax_side(key):
        kernel = jax.nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        return {"kernel": kernel(key, (60, 40)), "bias": jnp.zeros(40)}

    renames = {"kernel": "w"}
    cut = parity.initialization(lambda: torch_side(2 * std), jax_side, seeds=10, renames=renames)
    assert cut.equal, cut
    wide = parity.initialization(lambda: torch_side(2.0), jax_side, seeds=10, renames=renames)
    (text,) = texts(wide)
    assert text.endswith(
        "the normal distribution beneath is the same, cut at two standard deviations"
    )


SCRIPT = """
import jax.numpy as jnp, numpy as np, optax, torch
w = np.random.default_rng(0).normal(size=(4, 9))
def torch_side(): return (lambda p: torch.optim.Adam(p, 1e-3)), {"w": torch.tensor(w)}
def right(): return optax.adam(1e-3), {"w": jnp.asarray(w)}
def wrong(): return optax.adam(1e-3, b2=0.95), {"w": jnp.asarray(w)}
"""


def test_the_command_answers_by_its_exit_status(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(textwrap.dedent(SCRIPT))
    assert main(["train-step", f"{file}:torch_side", f"{file}:right"]) == 0
    assert main(["train-step", f"{file}:torch_side", f"{file}:wrong"]) == 1
    assert "beta2 0.95, where the reference has 0.999" in capsys.readouterr().out
    assert main(["train-step", f"{file}:torch_side", f"{file}:absent"]) == 2
