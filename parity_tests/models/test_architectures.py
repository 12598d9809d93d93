"""Whole ModelConfigs drawn at random: both twins agree. `--architectures N` draws N of them."""

import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from parity.judge.errors import FLOAT64_TOLERANCE
from parity_tests.models.test_models import model_pair
from transformer_spec import parameters
from transformer_spec.config import ModelConfig
from verification.twins.random_architectures import draw_architecture


def test_random_architectures(float64, ledger, request, capsys):
    wanted = request.config.getoption("--architectures")
    worst: dict[str, float] = {}
    found: dict[str, ModelConfig] = {}

    @settings(
        max_examples=wanted,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(request.config.getoption("--architectures-seed"))
    @given(st.integers(0, 2**32 - 1).map(draw_architecture))
    def check(drawn):
        config = drawn.config
        assume(str(config) not in worst)
        pair = model_pair(config, drawn.inputs, seed=drawn.seed)
        shapes = {name: tuple(p.shape) for name, p in pair.torch.named_parameters()}
        assert shapes == parameters.parameter_shapes(config)
        differences = pair.differences()
        ledger("random architectures", differences, tolerance=np.inf)
        top = max(differences, key=lambda d: d.error)
        worst[str(config)] = top.error
        if len(worst) % 100 == 0:
            with capsys.disabled():
                print(f"\n{len(worst)} of {wanted} architectures drawn", end="", flush=True)
        if top.error > FLOAT64_TOLERANCE:
            with capsys.disabled():
                print(f"\n{top}: {config}")
            found[f"{top} {drawn.inputs.keys()}"] = config

    check()
    errors = np.array(list(worst.values()))
    report = (
        f"\n{len(errors)} architectures, largest difference {errors.max():.1e}, "
        f"median {np.median(errors):.1e}, {len(found)} disagreements"
    )
    with capsys.disabled():
        print(report)
    assert len(errors) == wanted
    assert not found, f"{len(found)} disagree, the first: {next(iter(found.items()))}"
