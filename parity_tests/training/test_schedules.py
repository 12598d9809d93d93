"""Learning rates: literal values, and the libraries' own schedules as oracles."""

import numpy as np
import optax
import pytest
import torch

from transformer_spec.fields import ConfigError
from transformer_spec.schedules import (
    Constant,
    InverseSqrt,
    WarmupConstant,
    WarmupCosine,
    check_total,
    learning_rate,
)


def rates(schedule, updates, peak=1.0, d_model=16, total=12):
    return [
        learning_rate(schedule, n, peak=peak, d_model=d_model, total_steps=total) for n in updates
    ]


def test_constant():
    assert rates(Constant(), [1, 2, 99], peak=0.3) == [0.3, 0.3, 0.3]


def test_warmup_then_constant():
    found = rates(WarmupConstant(warmup_steps=4), range(1, 7), peak=0.8)
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8], rel=1e-15)


def test_the_papers_curve():
    """d_model 16, warmup 4: peak 16**-0.5 * 4**-0.5 = 1/8 at update 4, 1/16 at update 16."""
    found = rates(InverseSqrt(warmup_steps=4), [1, 2, 3, 4, 16])
    assert found == pytest.approx([1 / 32, 2 / 32, 3 / 32, 1 / 8, 1 / 16], rel=1e-15)


def test_the_papers_base_model_peaks_at_its_published_rate():
    (peak,) = rates(InverseSqrt(warmup_steps=4000), [4000], d_model=512)
    assert peak == pytest.approx(7.0e-4, rel=0.01)


def test_warmup_then_cosine():
    found = rates(WarmupCosine(warmup_steps=2, final_fraction=0.1), range(1, 9), total=6)
    middle = 0.1 + 0.9 / 2
    edge = 0.1 + 0.9 * 0.5 * (1 + np.sqrt(0.5))
    low = 0.1 + 0.9 * 0.5 * (1 - np.sqrt(0.5))
    expected = [0.5, 1.0, edge, middle, low, 0.1, 0.1, 0.1]
    assert found == pytest.approx(expected, rel=1e-12)


def test_optax_agrees_one_count_earlier(float64):
    """optax counts updates from 0: its count n is our update n."""
    theirs = optax.warmup_cosine_decay_schedule(0.0, 0.7, 5, 40, end_value=0.07)
    ours = rates(WarmupCosine(warmup_steps=5, final_fraction=0.1), range(1, 42), 0.7, total=40)
    np.testing.assert_allclose(ours, [float(theirs(n)) for n in range(1, 42)], rtol=1e-12)


def test_torchs_lambda_lr_agrees_one_step_later():
    """LambdaLR calls its function with 0 for the first update, where ours is asked for update 1."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    schedule = InverseSqrt(warmup_steps=4)
    theirs = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: rates(schedule, [n + 1])[0])
    seen = []
    for _ in range(9):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert seen == rates(schedule, range(1, 10))


def test_the_first_update_is_update_one():
    with pytest.raises(ValueError, match="update: 0"):
        rates(Constant(), [0])


def test_a_warmup_that_fills_the_run_is_refused():
    with pytest.raises(ConfigError, match=r"schedule\.warmup_steps: 12 .* below .* 12"):
        check_total(WarmupCosine(warmup_steps=12), 12)
    with pytest.raises(ConfigError, match="warmup_steps: 0"):
        WarmupConstant(warmup_steps=0)
