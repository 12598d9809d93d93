"""How a fresh parameter is drawn: one distribution per name and shape, declared for both twins.

Shapes are the torch twin's: a weight is [out, in].
"""

from dataclasses import dataclass
from typing import Literal

from transformer_spec.parameters import is_bias, is_embedding, is_norm

Scheme = Literal["xavier_uniform", "torch_default"]


@dataclass(frozen=True)
class Uniform:
    """U(-bound, bound)"""

    bound: float


@dataclass(frozen=True)
class Normal:
    """N(0, std**2)"""

    std: float


@dataclass(frozen=True)
class Fill:
    """One value everywhere."""

    value: float


Distribution = Uniform | Normal | Fill


def distribution(
    scheme: Scheme, name: str, shapes: dict[str, tuple[int, ...]], norm_start: float = 1.0
) -> Distribution:
    """The distribution of parameter `name` among a model's `shapes`.

    xavier_uniform: U(+-sqrt(6 / (fan_in + fan_out))) on every matrix, embeddings too, with q, k
    and v as the one fused matrix they are in `nn.MultiheadAttention`, so with the fan_out of all
    three; biases 0 (Glorot and Bengio 2010; `nn.init.xavier_uniform_` on all matrices).

    torch_default: what `nn.Linear` and `nn.Embedding` do by themselves, U(+-1/sqrt(fan_in)) on
    weights and on their biases, N(0, 1) on embeddings. Linen's defaults differ: LeCun normal on
    kernels, 0 on biases, N(0, 1/d_model) on embeddings.

    Norms start as the identity under either, their weights at `norm_start`. The matrices of a
    mixture's experts are stacked, and each is drawn as if it stood alone.
    """
    if is_norm(name):
        return Fill(0.0 if is_bias(name) else norm_start)
    if scheme == "xavier_uniform":
        return Fill(0.0) if is_bias(name) else Uniform((6 / sum(_fused(name, shapes))) ** 0.5)
    if is_embedding(name):
        return Normal(1.0)
    weight = name.removesuffix("bias") + "weight" if is_bias(name) else name
    # The bias of a tied head stands beside no matrix of its own.
    return Uniform(shapes[weight][-1] ** -0.5) if weight in shapes else Fill(0.0)


def _fused(name: str, shapes: dict[str, tuple[int, ...]]) -> tuple[int, int]:
    """[out, in] of a matrix; of q, k and v on top of each other where it is one of them."""
    layer, _, rest = name.rpartition(".")[0].rpartition(".")
    parts = ("q_proj", "k_proj", "v_proj")
    names = [f"{layer}.{part}.weight" for part in parts] if rest in parts else [name]
    return sum(shapes[n][-2] for n in names), shapes[name][-1]
