"""How a fresh parameter is drawn: one distribution per name and shape, declared for both twins.

Shapes are the torch twin's: a weight is [out, in].
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer_spec import streams
from transformer_spec.config import ModelConfig
from transformer_spec.normals import Numbers, normal_quantile
from transformer_spec.parameters import is_bias, is_embedding, is_norm

Scheme = Literal["xavier_uniform", "torch_default", "lecun_normal", "gpt2", "t5"]
Shapes = dict[str, tuple[int, ...]]
# The name of the formula in `draw`, which a run keeps.
DRAWS = "AS241"
# The probability that a standard normal variable lies below -2, and the standard deviation of one
# that is known to lie within 2 of its mean.
BELOW_MINUS_2 = 0.022750131948179207
TRUNCATED_STD = 0.87962566103423978
# So many numbers at a time stay in a core's cache through all the operations on them.
_BLOCK = 1 << 15


@dataclass(frozen=True)
class Uniform:
    """U(-bound, bound)"""

    bound: float


@dataclass(frozen=True)
class Normal:
    """N(0, std**2)"""

    std: float


@dataclass(frozen=True)
class TruncatedNormal:
    """Of standard deviation `std`, with nothing beyond 2 / TRUNCATED_STD = 2.27 of them."""

    std: float


@dataclass(frozen=True)
class Fill:
    """One value everywhere."""

    value: float


Distribution = Uniform | Normal | TruncatedNormal | Fill


def draw(
    distribution: Distribution,
    key: streams.Words,
    shape: tuple[int, ...],
    dtype: Literal["float32", "float64"],
) -> np.ndarray:
    """A fresh parameter.

    Its element of flat index n is F^-1(u), where u is number n of the key's stream of uniform
    numbers and F the distribution function. It is drawn in float64 and rounded once, so that a run
    in float32 begins where one in float64 does; by NumPy on the host, so that the bits are the same
    on every machine, under every version and in both frameworks.

    Args:
        key: [2], of this parameter alone.
        shape: the torch twin's.
    Differences: `jax.random` draws other numbers for each dtype, by formulas that changed with
        versions of jax; torch's generators give other numbers on other devices.
    """
    values = np.empty(math.prod(shape), dtype)
    if isinstance(distribution, Fill):
        values.fill(distribution.value)
        return values.reshape(shape)
    for start in range(0, values.size, _BLOCK):
        stop = min(start + _BLOCK, values.size)
        values[start:stop] = _inverse(distribution, streams.uniform(key, start, stop))
    return values.reshape(shape)


def _inverse(distribution: Uniform | Normal | TruncatedNormal, u: Numbers) -> Numbers:
    match distribution:
        case Uniform(bound):
            return (2 * u - 1) * bound
        case Normal(std):
            return normal_quantile(u) * std
        case TruncatedNormal(std):
            inside = BELOW_MINUS_2 + (1 - 2 * BELOW_MINUS_2) * u
            return normal_quantile(inside) * (std / TRUNCATED_STD)


def distribution(scheme: Scheme, name: str, shapes: Shapes, config: ModelConfig) -> Distribution:
    """The distribution of parameter `name` among a model's `shapes`.

    xavier_uniform: U(+-sqrt(6 / (fan_in + fan_out))) on every matrix, embeddings too, with q, k
    and v as the one fused matrix they are in `nn.MultiheadAttention`, so with the fan_out of all
    three; biases 0 (Glorot and Bengio 2010; `nn.init.xavier_uniform_` on all matrices).

    torch_default: what `nn.Linear` and `nn.Embedding` do by themselves, U(+-1/sqrt(fan_in)) on
    weights and on their biases, N(0, 1) on embeddings.

    lecun_normal: what Linen does by itself, a truncated normal of variance 1 / fan_in on weights,
    0 on biases, N(0, 1 / d_model) on embeddings (LeCun et al. 1998, equation 16).

    gpt2: N(0, 0.02**2), biases 0, and the last matrix of each residual branch of a stack with r
    branches smaller by 1 / sqrt(r) (Radford et al. 2019, section 2.3).

    t5: N(0, 1) on token embeddings and an untied head, else N(0, 1 / fan_in), q smaller by
    1 / sqrt(head_dim) since scores are not scaled; the relative bias N(0, 1 / d_model) (Raffel et
    al. 2020, their code).

    Norms start as the identity under any. The matrices of a mixture's experts are stacked, and
    each is drawn as if it stood alone.
    """
    if is_norm(name):
        return Fill(0.0 if is_bias(name) else config.norm_start)
    if is_bias(name):
        return _bias(scheme, name, shapes)
    fan_in = shapes[name][-1]
    match scheme:
        case "xavier_uniform":
            return Uniform((6 / sum(_fused(name, shapes))) ** 0.5)
        case "torch_default":
            return Normal(1.0) if is_embedding(name) else Uniform(fan_in**-0.5)
        case "lecun_normal":
            std = fan_in**-0.5
            return Normal(std) if is_embedding(name) else TruncatedNormal(std)
        case "gpt2":
            return Normal(0.02 * _branches(name, shapes) ** -0.5)
        case "t5":
            return Normal(_t5(name, fan_in, config))


def _bias(scheme: Scheme, name: str, shapes: Shapes) -> Distribution:
    weight = name.removesuffix("bias") + "weight"
    # The bias of a tied head stands beside no matrix of its own.
    if scheme == "torch_default" and weight in shapes:
        return Uniform(shapes[weight][-1] ** -0.5)
    return Fill(0.0)


def _fused(name: str, shapes: Shapes) -> tuple[int, int]:
    """[out, in] of a matrix; of q, k and v on top of each other where it is one of them."""
    layer, _, rest = name.rpartition(".")[0].rpartition(".")
    parts = ("q_proj", "k_proj", "v_proj")
    names = [f"{layer}.{part}.weight" for part in parts] if rest in parts else [name]
    return sum(shapes[n][-2] for n in names), shapes[name][-1]


def _branches(name: str, shapes: Shapes) -> int:
    """The residual branches of the stack, for a matrix that ends one; else 1."""
    ends = ("o_proj.weight", "down_proj.weight")
    if not name.endswith(ends):
        return 1
    stack = name.partition("layers.")[0]
    return sum(n.startswith(f"{stack}layers.") and n.endswith(ends) for n in shapes)


def _t5(name: str, fan_in: int, config: ModelConfig) -> float:
    module = name.split(".")[-2]
    if module == "rel_bias":
        return config.d_model**-0.5
    if is_embedding(name) or module == "lm_head":
        return 1.0
    return (fan_in * (config.head_size if module == "q_proj" else 1)) ** -0.5
