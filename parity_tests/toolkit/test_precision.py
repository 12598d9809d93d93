"""float32, bfloat16 and float16 against float64: within what theory allows, or refused."""

from dataclasses import replace
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import torch_reference.attention as torch_attention
import torch_reference.norms as torch_norms
from parity.judge import precision
from parity.judge.precision import DTYPES, STEP, Roundings, unit_roundoff
from transformer_spec.config import MixtureOfExperts
from verification import low_precision
from verification.low_precision import Component, ErrorPair
from verification.twins.components import COMPONENTS, NORMS, S, attention, feed_forward, norm
from verification.twins.pair import Pair
from verification.twins.router_margins import clear_choices

# So many keys that a sum over them, accumulated in 8 or 11 bits, shows.
MANY = 256


def outside_tolerance(component: Component, dtype: str) -> list[ErrorPair]:
    """What the theory does not allow."""
    return [
        row for row in low_precision.measure_errors(component, dtype) if not row.within_tolerance
    ]


def tier(name: str, dtype: str) -> list[pytest.MarkDecorator]:
    """Whole models are components again: by default two in bfloat16, in CI all of them in it."""
    if not name.startswith("preset"):
        return []
    if dtype != "bfloat16":
        return [pytest.mark.slow, pytest.mark.long]
    return [] if name in ("preset sort", "preset bert-base") else [pytest.mark.slow]


EVERY = [
    pytest.param(name, dtype, marks=tier(name, dtype)) for name in COMPONENTS for dtype in DTYPES
]


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_errors_are_within_tolerance(name, dtype):
    assert not outside_tolerance(COMPONENTS[name], dtype)


@pytest.mark.parametrize("name", ["LayerNorm", "attention", "preset gpt2"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_keep_the_type_of_what_goes_in(name, dtype):
    twins = COMPONENTS[name].build(dtype)
    for found in (twins.run_flax(), twins.run_torch()):
        assert {str(value.dtype) for value in found.values()} == {dtype}


def rounds_once(component: Component, dtype: str) -> bool:
    """One rounding leaves STEP u and two leave sqrt(2) of that; the line is between them."""
    output, *_ = low_precision.measure_errors(component, dtype)
    return max(output.flax, output.torch) <= STEP * 1.5**0.5 * unit_roundoff(dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_round_once(name, dtype):
    assert rounds_once(norm(name, 256), dtype)


def sum_in_dtype(x: torch.Tensor) -> torch.Tensor:
    """The sum over the last axis, every partial sum rounded."""
    total = torch.zeros_like(x[..., :1])
    for i in range(x.shape[-1]):
        total = total + x[..., i : i + 1]
    return total


def softmax_in_dtype(scores, mask):
    """`masked_softmax` without `widen`."""
    scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return torch.where(mask, powers / sum_in_dtype(powers), 0.0)


def softmax_in_bfloat16(scores, mask, whole=torch_attention.masked_softmax):
    return whole(scores.bfloat16(), mask).bfloat16().to(scores.dtype)


def rms_norm_in_dtype(self, x):
    mean_square = sum_in_dtype(x.square()) / x.shape[-1]
    return x / torch.sqrt(mean_square + self.eps) * self.weight


def rms_norm_of_llama(self, x):
    """Rounds before it multiplies."""
    wide = torch_norms.widen(x)
    normed = wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + self.eps)
    return normed.to(x.dtype) * self.weight


def one_pass_layer_norm(self, x):
    mean = x.mean(-1, keepdim=True)
    variance = x.square().mean(-1, keepdim=True) - mean.square()
    return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


RMS, LAYER = torch_norms.RMSNorm, torch_norms.LayerNorm
SOFTMAX = (torch_attention, "masked_softmax")
FAULTS = {
    "float32, softmax in bfloat16": ("float32", attention(S), *SOFTMAX, softmax_in_bfloat16),
    "float16, softmax in bfloat16": ("float16", attention(MANY), *SOFTMAX, softmax_in_bfloat16),
    "bfloat16, softmax in bfloat16": ("bfloat16", attention(MANY), *SOFTMAX, softmax_in_dtype),
    "bfloat16, mean square in bfloat16": (
        *("bfloat16", norm("RMSNorm", 256), RMS, "forward", rms_norm_in_dtype),
    ),
    "float16, mean square in float16": (
        *("float16", norm("RMSNorm", 256), RMS, "forward", rms_norm_in_dtype),
    ),
    **{
        f"{dtype}, one-pass variance": (
            *(dtype, norm("LayerNorm", shift=3.0), LAYER, "forward", one_pass_layer_norm),
        )
        for dtype in DTYPES
    },
}


@pytest.mark.parametrize(
    ("dtype", "component", "owner", "name", "fault"), FAULTS.values(), ids=FAULTS
)
def test_low_precision_where_it_does_not_belong_is_refused(dtype, component, owner, name, fault):
    twins = component.build(dtype)
    truth = twins.run_truth()
    with patch.object(owner, name, fault), patch.object(twins, "run_truth", lambda: truth):
        assert outside_tolerance(replace(component, build=lambda _: twins), dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_norm_that_rounds_twice_is_refused(dtype):
    with patch.object(RMS, "forward", rms_norm_of_llama):
        assert not rounds_once(norm("RMSNorm", 256), dtype)


def test_a_choice_that_roundings_turn_would_drown_all_else():
    """Two routers alike but for the last digit of one weight: both sides are off by far more."""
    component = feed_forward(MixtureOfExperts(num_experts=3, top_k=1, normalize=False))
    twins = component.build("bfloat16")
    assert isinstance(twins, Pair)
    router = twins.torch.router.weight
    nearly = router.detach()[:1] * torch.tensor([[1.0], [1.0], [-1.0]])
    nearly[1, 0] *= 1 + 2**-7
    with torch.no_grad():
        router.copy_(nearly)
    twins.params["router"]["kernel"] = jnp.asarray(nearly.float().numpy(force=True).T, jnp.bfloat16)
    output, *_ = low_precision.measure_errors(replace(component, build=lambda _: twins), "bfloat16")
    assert min(output.flax, output.torch) > 10 * output.floor


def test_routers_are_drawn_until_every_choice_is_clear():
    slot = MixtureOfExperts(num_experts=3, top_k=2)
    twins = feed_forward(slot).build("float32")
    assert isinstance(twins, Pair)
    named = {name: p.numpy(force=True) for name, p in twins.torch.named_parameters()}
    tied = named | {"router.weight": np.repeat(named["router.weight"][:1], 3, 0)}

    def cleared(way: Roundings, given: dict) -> np.ndarray:
        return clear_choices(slot, twins.torch, twins.inputs, "bfloat16", way, given)[
            "router.weight"
        ]

    np.testing.assert_array_equal(cleared(Roundings(), named), named["router.weight"])
    assert not np.array_equal(cleared(Roundings(1), tied), tied["router.weight"])
    with pytest.raises(RuntimeError, match="no router of 100 leads by"):
        cleared(Roundings(10**6), named)


def test_an_overflow_is_refused():
    """Squares of 300 leave float16, whose largest number is 65504."""
    component = norm("RMSNorm", shift=300.0)
    assert not outside_tolerance(component, "float16")
    with patch.object(RMS, "forward", rms_norm_in_dtype):
        assert outside_tolerance(component, "float16")


def test_another_type_is_refused():
    def widened(self, x):
        return torch_norms.widen(x) * self.weight

    with (
        patch.object(RMS, "forward", widened),
        pytest.raises(TypeError, match=r"output\.0: flax gives bfloat16, torch float32"),
    ):
        low_precision.measure_errors(norm("RMSNorm"), "bfloat16")


def test_one_step_is_the_error_of_one_rounding():
    """Numbers whose logarithms are evenly spread over whole powers of two."""
    values = 2 ** np.random.default_rng(1).uniform(-3, 3, 10**4)
    for dtype in ("bfloat16", "float16"):
        once = values.astype(dtype).astype(np.float64)
        error = np.linalg.norm(once - values) / np.linalg.norm(values)
        assert error == pytest.approx(precision.rounding_floor(dtype, Roundings(1)), rel=0.1)
    assert precision.rounding_floor("bfloat16", Roundings(16)) == 4 * STEP / 256


def test_wide_operations_count_with_the_unit_of_float32():
    assert precision.rounding_floor("float32", Roundings(2, 7)) == STEP * 3 * unit_roundoff(
        "float32"
    )
    assert precision.rounding_floor("bfloat16", Roundings(0, 9)) == STEP * 3 * unit_roundoff(
        "float32"
    )
    assert precision.rounding_floor("float16", Roundings()) == 0


def test_an_error_may_be_twice_the_others_plus_a_floor():
    assert precision.within_tolerance(2.5, 1.0, 0.5)
    assert not precision.within_tolerance(2.6, 1.0, 0.5)


def test_the_table_has_a_line_for_every_component_and_dtype():
    entries = low_precision.table({"norm": COMPONENTS["RMSNorm"]}, ["float32", "bfloat16"])
    assert [(e.component, e.dtype) for e in entries] == [("norm", "float32"), ("norm", "bfloat16")]
    assert all(0 < error < 5 for e in entries for error in (*e.output, *e.gradient))
    lines = low_precision.markdown(entries).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {9}
